"""The command line: options and output of each command. Heavy imports are inside the functions, to keep --help fast."""
