"""Leaderboards as a static site: pages and downloads."""
