"""One job from its data to its result."""
