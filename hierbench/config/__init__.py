"""What was asked for, as closed data: recipes, specs, options; without torch."""
