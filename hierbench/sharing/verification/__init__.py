"""Verification: what of published or received results follows from their evidence, and what is only claimed."""
