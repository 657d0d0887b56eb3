"""One table per file: a function that returns a `Table`."""
