"""One file per method, named as it is called on the command line."""
