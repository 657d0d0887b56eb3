"""Run records on disk: how they are written, checked, repaired and mirrored."""
