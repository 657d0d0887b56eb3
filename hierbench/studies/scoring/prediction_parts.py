"""Predictions of one file or model, and checking that their parts fit each other and the tree.

Shapes: N examples, K classes, k ranked classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hierbench.hierarchy.class_names import NumberOrder, class_indices, in_order_of_tree, number_order, target_indices
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.utils.arrays import with_columns
from hierbench.utils.errors import Argument, InputError, UserError

Parts = Mapping[str, NDArray[Any]]  # "scores", "classes", "targets", "ids", "groups"; classes may be names
BLANK = ("", "nan", "None", "NaN", "<NA>")  # of a target that is not there


@dataclass(frozen=True)
class ReadingOptions:
    """How to read predictions, where their form leaves a choice.

    Attributes:
        order: of the classes where nothing names them.
        use: the answers or the scores of a file that has both and in which they disagree.
        ignore: columns or arrays that are left out.
        skip_unlabelled: whether rows without a target are left out.
        group: the column or array that says which examples are of one specimen, site or patient; "" for none.
    """

    order: NumberOrder = "tree"
    use: Literal["answers", "scores"] | None = None
    ignore: Sequence[str] = ()
    skip_unlabelled: bool = False
    group: str = ""


ORDER_OF_TREE = ReadingOptions()
ASK_FOR_ORDER = ReadingOptions("unknown")


@dataclass(frozen=True)
class Predictions:
    """The predictions of one file.

    Attributes:
        where: the file's name, which begins errors.
        scores: [N, K], larger = ranked earlier; or [N, k] of the ranked classes; None without scores.
        classes: [N, k] ranked class indices, best first; None where every class has a score. Of answers, [N, 1], -1 - n
            stands for an inner node n.
        targets: [N] class indices, -1 - n for an inner node n, or None.
        ids: names of the N examples, or None.
        columns: in which order the columns of scores were, "" without scores of all classes.
        notes: what else was understood, in sentences.
        groups: of the N examples, or None.
    """

    where: str
    scores: NDArray[Any] | None
    classes: IntArray | None
    targets: IntArray | None
    ids: list[str] | None
    columns: str = ""
    notes: tuple[str, ...] = ()
    groups: list[str] | None = None

    @property
    def has_inner_answers(self) -> bool:
        """Whether an answer is a node above the classes."""
        return self.classes is not None and bool((self.classes < 0).any())

    @property
    def num_examples(self) -> int:
        """N."""
        return len(self.all_scores if self.classes is None else self.classes)

    @property
    def all_scores(self) -> NDArray[Any]:
        """[N, K], where classes are not ranked."""
        assert self.scores is not None, self.where
        return self.scores

    @property
    def true_classes(self) -> IntArray:
        """[N] class indices, -1 - n for an inner node n, once targets were found."""
        assert self.targets is not None, self.where
        return self.targets

    def labelled_with_classes(self) -> "Predictions":
        """Return the predictions of the examples whose target is a class."""
        is_class = self.true_classes >= 0
        return self if is_class.all() else self.take(np.flatnonzero(is_class))

    def take(self, rows: IntArray) -> "Predictions":
        """Return the predictions of some examples, in this order."""
        parts = (self.scores, self.classes, self.targets)
        scores, classes, targets = (None if part is None else part[rows] for part in parts)
        ids, groups = (part and [part[row] for row in rows.tolist()] for part in (self.ids, self.groups))
        return replace(self, scores=scores, classes=classes, targets=targets, ids=ids, groups=groups)


def texts_of(values: NDArray[Any] | None) -> list[str] | None:
    """Return values as texts, which bytes may be; None of None."""
    if values is None:
        return None
    return [value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value) for value in values.tolist()]


def check_parts(parts: Parts, tree: Hierarchy, where: str, options: ReadingOptions) -> Predictions:
    """Return predictions with class indices; a UserError unless their parts fit each other and the tree."""
    order = options.order
    parts = _by_content(dict(parts), tree)
    scores = parts.get("scores")
    answers = parts.get("classes")
    num_examples = len(next(part for part in (scores, answers) if part is not None))
    for role in ("targets", "ids", "groups"):
        if role in parts and parts[role].shape != (num_examples,):
            raise UserError(f"{where}: {role} must be [{num_examples}], got {list(parts[role].shape)}")
    is_labelled = _is_labelled(parts.get("targets"), where, options)
    if is_labelled is not None:
        parts = {role: part if role == "names" else part[is_labelled] for role, part in parts.items()}
        scores = parts.get("scores")
        answers = parts.get("classes")
    classes = None
    columns = ""
    notes = list[str]()
    if is_labelled is not None:
        notes.append(f"{int((~is_labelled).sum()):,} rows without a target are left out.")
    if answers is not None:
        ranked = answers[:, None] if answers.ndim == 1 else answers
        name = f"{where}: classes"
        single = ranked.ndim == 2 and ranked.shape[1] == 1
        classes = (
            target_indices(ranked[:, 0], tree, name, order)[:, None]
            if single
            else class_indices(ranked, tree, name, order)
        )
        if classes.shape[1] > tree.num_classes or (np.diff(np.sort(classes, axis=1), axis=1) == 0).any():
            raise UserError(f"{where}: a row ranks a class twice")
    if scores is not None:
        _check_shape(scores, classes, tree, where)
        if classes is None or (classes.shape[1] == 1 and scores.shape[1] == tree.num_classes > 1):
            scores, columns = _order_columns(scores, parts.get("names"), tree, where, order)
        else:
            scores, classes = _in_order_of_rank(scores, classes, where)
    if scores is not None and classes is not None and columns:
        num_different = int((np.asarray(scores).argmax(axis=1) != classes[:, 0]).sum())
        if num_different and options.use is None:
            choices = [Argument("use", kind) for kind in ("answers", "scores")]
            problem = f"{where}: answers and scores disagree in {num_different:,} of {num_examples:,} rows"
            raise InputError(f"{problem}: {choices[0]} or {choices[1]}", *choices)
        notes.append(f"Answers and scores disagree in {num_different:,} rows; the {options.use or 'scores'} are used.")
        if options.use == "answers":
            scores = None
            columns = ""
        else:
            classes = None
    targets = target_indices(parts["targets"], tree, f"{where}: targets", order) if "targets" in parts else None
    ids, groups = (texts_of(parts.get(role)) for role in ("ids", "groups"))
    return Predictions(where, scores, classes, targets, ids, columns, tuple(notes), groups)


def _by_content(parts: dict[str, NDArray[Any]], tree: Hierarchy) -> dict[str, NDArray[Any]]:
    """Return parts in which names of columns, and labels in place of scores, are in the place of their role."""
    scores = parts.get("scores")
    if scores is not None and "names" not in parts and _are_names(parts.get("classes"), tree):
        parts["names"] = parts.pop("classes")
    if scores is not None and scores.ndim == 1 and scores.dtype.kind in "iuUS" and "classes" not in parts:
        parts["classes"] = parts.pop("scores")
    return parts


def _is_labelled(targets: NDArray[Any] | None, where: str, options: ReadingOptions) -> NDArray[np.bool_] | None:
    """Return [N] whether a row has a target, None where all have; a UserError unless such rows are to be left out."""
    if targets is None:
        return None
    if targets.dtype.kind in "OUS":
        is_blank = np.array([str(value).strip() in BLANK for value in targets.tolist()])
    else:
        is_blank = np.isnan(targets) | (options.skip_unlabelled & (targets < 0))  # -100 of Hugging Face
    if not is_blank.any():
        return None
    if not options.skip_unlabelled:
        choice = Argument("skip_unlabelled", True)
        raise InputError(f"{where}: {int(is_blank.sum()):,} rows have no target: {choice} leaves them out", choice)
    if is_blank.all():
        raise UserError(f"{where}: no row has a target")
    return ~is_blank


def _check_shape(scores: NDArray[Any], classes: IntArray | None, tree: Hierarchy, where: str) -> None:
    """Raise a UserError unless scores are [N, K], or [N, k] of ranked classes, and real numbers."""
    expected = tree.num_classes if classes is None else classes.shape[1]
    both = classes is not None and expected == 1 and scores.shape[1:] == (tree.num_classes,)
    if not both and (scores.ndim != 2 or scores.shape[1] != expected):
        shape = " x ".join(f"{size:,}" for size in scores.shape)
        kind = "classes" if classes is None else "ranked classes"
        more = (
            "; its first column may be ids, which are an array of their own"
            if scores.shape[1:] == (expected + 1,)
            else ""
        )
        raise UserError(
            f"{where}: scores are {shape}, not N x {expected:,}, a column for each of the {expected:,} {kind}{more}"
        )
    if scores.dtype.kind not in "fiu":
        raise UserError(f"{where}: scores are {scores.dtype}, not real numbers")


def _in_order_of_rank(scores: NDArray[Any], classes: IntArray, where: str) -> tuple[NDArray[Any], IntArray]:
    """Return scores and ranked classes [N, k], equal scores by class; a UserError if scores rise with the rank."""
    if np.isnan(scores).any():
        raise UserError(f"{where}: a score is NaN, first in row {int(np.argwhere(np.isnan(scores))[0][0])}")
    rises = (np.diff(scores.astype(np.float64), axis=1) > 0).any(axis=1)
    if rises.any():
        raise UserError(
            f"{where}: scores rise with the rank in {int(rises.sum()):,} of {len(scores):,} rows, first in row "
            f"{int(np.flatnonzero(rises)[0])}: the first ranked class must have the largest"
        )
    ranks = np.lexsort((classes, -scores.astype(np.float64)), axis=1)
    return np.take_along_axis(scores, ranks, axis=1), np.take_along_axis(classes, ranks, axis=1)


def _are_names(values: NDArray[Any] | None, tree: Hierarchy) -> bool:
    """Whether values name all classes, each once, as columns do."""
    if values is None or values.shape != (tree.num_classes,) or values.dtype.kind not in "OUS":
        return False
    return set(texts_of(values) or ()) == set(tree.classes)


def _order_columns(
    scores: NDArray[Any], names: NDArray[Any] | None, tree: Hierarchy, where: str, order: NumberOrder
) -> tuple[NDArray[Any], str]:
    """Return scores [N, K] with the columns in the tree's order, and their order before."""
    if names is not None:
        if names.shape != (tree.num_classes,):
            raise UserError(f"{where}: names must be [{tree.num_classes}], got {list(names.shape)}")
        labels = texts_of(names) if names.dtype.kind in "OUS" else names.tolist()
        return in_order_of_tree(scores, labels or [], tree, where), "by name"
    columns = number_order(tree, order, f"{where}: columns of scores")
    if not np.array_equal(columns, np.arange(tree.num_classes)):
        return with_columns(scores, np.argsort(columns)), "in alphabetical order"
    first = tree.classes[0]
    last = tree.classes[-1]
    return scores, f"in the order of the tree: column 0 is {first!r}, column {tree.num_classes - 1} is {last!r}"
