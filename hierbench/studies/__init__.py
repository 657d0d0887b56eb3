"""What a command trains: a plan, what to run next, and its table."""
