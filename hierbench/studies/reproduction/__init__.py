"""Runs trained again, by the request that a table records or drawn at random, and how the results compare."""
