"""The roles of columns and arrays in files of predictions, by their names."""

import re

from hierbench.utils.errors import UserError

NAMES_OF = {
    "ids": ("filename", "file", "id", "ids", "image", "image_id", "path", "name", "unnamed: 0", "__index_level_0__"),
    "targets": ("target", "targets", "label_ids", "label_id", "y_true", "true_label", "ground_truth", "y"),
    "labels": ("label", "labels"),
    "classes": (
        *("index", "indices", "classes", "class", "class_id", "pred", "prediction"),
        *("predicted", "predicted_class", "predicted_label", "y_pred", "category", "topk"),
    ),
    "names": ("names", "class_names"),  # of the columns of scores
    "split": ("split",),
}
ROLES = {name: role for role, names in NAMES_OF.items() for name in names}


SMALLER_IS_BETTER = re.compile(r"(.*[_ .-])?(rank|ranking|dist|distances?|loss|losses|error|errors|cost|nll|energy)s?")


def find_role(name: str) -> str:
    """Return the role of a column or an array: one of `NAMES_OF`, else "scores"."""
    return ROLES.get(name.casefold(), "scores")


def refuse_smaller_better(name: str) -> None:
    """Raise a UserError for scores by the name of values that are better where smaller."""
    if SMALLER_IS_BETTER.fullmatch(name.casefold()):
        raise UserError(f"{name!r} names values that are better where smaller, and scores are better where larger")
