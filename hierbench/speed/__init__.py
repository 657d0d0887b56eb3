"""Estimates of a plan's time on this machine, and the report on it before a run."""
