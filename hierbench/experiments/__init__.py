"""One file or folder per experiment: comparison, ablation, collapse, tuning, bench."""
