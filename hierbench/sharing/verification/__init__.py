"""Verification: which published or received results follow from their evidence, and which are only claimed."""
