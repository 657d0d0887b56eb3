"""One table a file: a function of what it is of that returns a `Table`."""
