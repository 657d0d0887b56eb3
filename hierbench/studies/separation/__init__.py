"""`hierbench run --until-separated`: further seeds for two rows, in a design that keeps its error."""
