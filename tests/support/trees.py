"""Two small trees of unequal depth."""

from hierbench import Hierarchy

THINGS = Hierarchy.from_paths(
    {
        "cat": ("animal", "feline", "cat"),
        "lion": ("animal", "feline", "lion"),
        "dog": ("animal", "dog"),
        "car": ("thing", "vehicle", "car"),
        "bus": ("thing", "vehicle", "bus"),
    }
)
LIVING = Hierarchy.from_paths(
    {
        "oak": ("plant", "tree", "oak"),
        "elm": ("plant", "tree", "elm"),
        "fern": ("plant", "fern"),
        "wren": ("animal", "bird", "wren"),
        "robin": ("animal", "bird", "robin"),
        "cod": ("animal", "cod"),
    }
)
