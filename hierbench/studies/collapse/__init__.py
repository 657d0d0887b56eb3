"""Neural collapse: retraining with snapshots, measures, curves and the figure."""
