"""What Python programs and notebooks call, and with them the commands: run, board, score; here nothing is printed."""
