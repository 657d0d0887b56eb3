"""The request, as closed data: recipes, specs, options; without torch."""
