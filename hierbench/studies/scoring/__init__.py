"""Predictions made elsewhere, read from files, put in order and scored."""
