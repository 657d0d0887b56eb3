"""The page of `hierbench report`."""
