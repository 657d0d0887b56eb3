"""Studies: a plan, the jobs that its results call for next, and a table; one function carries them out."""
