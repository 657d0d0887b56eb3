"""A run folder: its writer (`Run`), its reader (`Record`), requests, predictions, and the MLflow mirror."""
