"""The functions for programs and notebooks: run, board, score; they print nothing."""
