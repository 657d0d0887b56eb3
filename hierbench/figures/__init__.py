"""Plots and pages of finished runs."""
