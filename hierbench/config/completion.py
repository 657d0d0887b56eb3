"""Names of datasets and methods, and how a shell completes them; nothing is imported that takes time."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

METHODS_GROUP = "hierbench.methods"  # of entry points, and the package with the project's own


def method_folder() -> Path:
    """Return the folder of the project's own methods."""
    return Path(next(iter(import_module(METHODS_GROUP).__path__)))


def method_names() -> list[str]:
    """Return the names of all installed methods, without importing them."""
    from importlib.metadata import entry_points

    files = {path.stem for path in method_folder().glob("*.py") if not path.stem.startswith("_")}
    return sorted(files | entry_points(group=METHODS_GROUP).names)


def complete_dataset(incomplete: str) -> list[str]:
    """Complete a dataset's name; the shell itself completes the path of a user's file."""
    from hierbench.config.recipe import recipe_names

    return [name for name in recipe_names() if name.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Complete the last of several methods, separated by commas."""
    from hierbench.config.sections import METHOD_GROUPS

    return complete_last(incomplete, [*METHOD_GROUPS, *method_names()])


def complete_types(incomplete: str) -> list[str]:
    """Complete the last of several types, separated by commas."""
    from hierbench.config.sections import FEATURE_TYPES

    return complete_last(incomplete, FEATURE_TYPES)


def complete_last(incomplete: str, names: Iterable[str]) -> list[str]:
    """Complete the last of several names, separated by commas; those before it are not offered again."""
    before, comma, last = incomplete.rpartition(",")
    typed = before.split(",")
    return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in typed]
