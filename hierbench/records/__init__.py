"""The gate: a run folder, own or received, becomes a Record that nothing behind it doubts."""
