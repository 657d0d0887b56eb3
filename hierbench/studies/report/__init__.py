"""The report on a model's predictions: its numbers. `hierbench.figures.report` makes the page of them."""
