"""Files, locks, processes and console: what knows nothing of classifiers."""
