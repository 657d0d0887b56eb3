"""What is drawn and written from finished runs."""
