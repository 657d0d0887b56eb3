"""The roles of columns and arrays in files of predictions, by their names: what has no role is never scores."""

import re
from collections.abc import Sequence

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.utils.errors import UserError

NAMES_BY_ROLE = {
    "ids": ("filename", "file", "id", "ids", "image", "image_id", "path", "name", "unnamed: 0", "__index_level_0__"),
    "targets": (
        "target",
        "targets",
        "label_ids",
        "label_id",
        "y_true",
        "true_label",
        "ground_truth",
        "truth",
        "y",
        "actual",
        "gt",
        "true",
    ),
    "labels": ("label", "labels"),  # targets, or names of ranked classes as timm writes them
    "classes": (
        *("index", "indices", "classes", "class", "class_id", "pred", "prediction", "answer", "answers", "top"),
        *("predicted", "predicted_class", "predicted_label", "y_pred", "category", "topk"),
    ),
    "names": ("names", "class_names"),  # of the columns of scores
    "split": ("split",),
}
ROLES = {name: role for role, names in NAMES_BY_ROLE.items() for name in names}
SCORE_WORD = r"prob(?:a|s|abilit(?:y|ies))?|p|scores?|conf(?:idences?)?|logits?|softmax|outputs?|predictions"
NAME_OF_SCORES = re.compile(rf"(?:.*[_ .-])?(?:{SCORE_WORD})|arr_0")
NAME_OF_CLASS = re.compile(rf"(?:{SCORE_WORD})(?:[_ .:-](.+)|\((.+)\))|(.+)[_ .:-](?:{SCORE_WORD})", re.IGNORECASE)
NUMBERED = re.compile(r"(.*?)[_. -]?(\d{1,6})")  # the common name of numbered columns, and the number
SMALLER_IS_BETTER = re.compile(r"(.*[_ .-])?(rank|ranking|dist|distances?|loss|losses|error|errors|cost|nll|energy)s?")


def find_role(name: str) -> str | None:
    """Return the role of a column or an array: one of `NAMES_BY_ROLE`, "scores", or None for another name.

    Raises:
        UserError: by its name it holds values that are better where smaller.
    """
    folded = name.casefold()
    if folded in ROLES:
        return ROLES[folded]
    if SMALLER_IS_BETTER.fullmatch(folded):
        raise UserError(f"{name!r} names values that are better where smaller, and scores are better where larger")
    return "scores" if NAME_OF_SCORES.fullmatch(folded) else None


def class_columns(columns: Sequence[str], tree: Hierarchy, where: str) -> dict[str, str]:
    """Return {column: class} of the columns of scores that are named as classes: ant, prob_ant, P(ant) or ant_prob.

    Raises:
        UserError: a class has no column, or one that differs in case.
    """
    class_by_folded = {name.casefold(): name for name in tree.classes}
    class_by_column = dict[str, str]()
    for column in columns:
        match = NAME_OF_CLASS.fullmatch(column)
        inner = "" if match is None else next(part for part in match.groups() if part)
        name = next((name for name in (column, inner) if name.casefold() in class_by_folded), None)
        if name is not None:
            class_by_column[column] = name
    if len(class_by_column) < 2 or 2 * len(class_by_column) < tree.num_classes:
        return {}
    missing = [name for name in tree.classes if name not in class_by_column.values()]
    if missing:
        other = next(
            (column for column, name in class_by_column.items() if name.casefold() == missing[0].casefold()), ""
        )
        hint = f"; column {other!r} differs in case: rename it to {missing[0]!r}" if other else ""
        raise UserError(
            f"{where}: no column for {len(missing):,} of {tree.num_classes:,} classes: {missing[0]!r}{hint}"
        )
    return class_by_column
