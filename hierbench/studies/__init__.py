"""What a command trains: a plan, what its results call for next, and a table, which one function carries out."""
