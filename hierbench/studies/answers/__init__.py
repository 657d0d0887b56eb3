"""Answers of finished runs: decision rules, temperature and sets, from their scores; nothing is trained."""
