"""Files, locks, processes and console, without anything on classifiers."""
