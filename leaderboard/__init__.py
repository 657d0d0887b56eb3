"""From run records to tables: aggregation, highlighting, rendering; nothing here imports torch."""
