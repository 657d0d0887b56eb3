"""The report on a model's predictions: its numbers, its sentences, and the page of them."""
