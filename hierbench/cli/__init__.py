"""The commands: what they take and print. Heavy imports stay inside the functions, so that help answers at once."""
