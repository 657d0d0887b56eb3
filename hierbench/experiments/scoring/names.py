"""Names of columns and arrays in files of predictions; names of classes are in `hierbench.hierarchy.names`."""

from collections.abc import Sequence

from hierbench.hierarchy.tree import Hierarchy
from hierbench.utils.errors import UserError

NAMES_OF = {
    "ids": ("filename", "file", "id", "ids", "image", "image_id", "path", "name", "unnamed: 0", "__index_level_0__"),
    "targets": ("target", "targets", "label_ids", "label_id", "y_true", "true_label", "ground_truth", "y"),
    "labels": ("label", "labels"),
    "classes": ("index", "indices", "classes", "class", "pred", "prediction", "topk"),
    "split": ("split",),
}
ROLES = {name: role for role, names in NAMES_OF.items() for name in names}


def role_of(name: str) -> str:
    """Return what an array of an .npz holds by its name: "ids", "targets", "classes", else "scores"."""
    role = ROLES.get(name.casefold(), "scores")
    return "targets" if role == "labels" else role


def in_order_of_classes(columns: Sequence[str], tree: Hierarchy, where: str) -> list[str] | None:
    """Return the columns that are named as the classes, in target order; None where columns are not named so.

    Raises:
        UserError: a class has no column; one that differs in case, and thus is meant, is suggested.
    """
    there = set(columns)
    folded = {name.casefold() for name in tree.classes}
    named = [name for name in columns if name.casefold() in folded]
    if len(named) < 2 or 2 * len(named) < tree.num_classes:
        return None
    missing = [name for name in tree.classes if name not in there]
    if missing:
        meant = next((name for name in named if name.casefold() == missing[0].casefold()), "")
        hint = f"; column {meant!r} differs in case: rename it to {missing[0]!r}" if meant else ""
        raise UserError(
            f"{where}: no column for {len(missing):,} of {tree.num_classes:,} classes: {missing[0]!r}{hint}"
        )
    return list(tree.classes)
