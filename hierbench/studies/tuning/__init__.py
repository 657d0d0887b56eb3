"""Search for hyperparameters on the validation split."""
