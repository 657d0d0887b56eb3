"""What a command trains: a plan and its table, which one function carries out."""
