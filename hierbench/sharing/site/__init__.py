"""Leaderboards as a static site: pages, downloads, a feed."""
