"""`hierbench.report`: what a model gets wrong, what to answer when it is unsure, whether another one is better."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hierbench.answers.choices import split_rules
from hierbench.hierarchy.class_names import ClassOrder
from hierbench.hierarchy.label_tree import Distance, Hierarchy
from hierbench.metrics.calibration import ScoreKind
from hierbench.python.boards import whole_number
from hierbench.python.scoring import prediction_arrays
from hierbench.studies.report.model_report import ModelReport, ReportSettings
from hierbench.studies.report.report_request import ReportRequest, report_files
from hierbench.studies.report.rule_fitting import REPORT_RULES
from hierbench.studies.scoring.prediction_parts import ReadingOptions


def report(
    scores: Any,
    targets: Any = None,
    tree: Hierarchy | str | Path | None = None,
    *,
    validation: Any = None,
    against: Any = None,
    against_validation: Any = None,
    groups: Any = None,
    name: str | None = None,
    distance: Distance | None = None,
    order: ClassOrder | None = None,
    scores_are: ScoreKind | None = None,
    rules: str | Sequence[str] = REPORT_RULES,
    train_counts: Mapping[str, int] | str | Path | Any = None,
    resamples: int = 1000,
    seed: int = 0,
) -> ModelReport:
    """Return the report on predictions; as `hierbench report`, whose page `.write("report.html")` writes.

    Args:
        scores: [N, K], or a file of predictions, as of `hierbench.score`; a list of several is a model's seeds.
        targets: [N], class indices or names; of a file, None.
        tree: a `Hierarchy`, the file of a tree, or the name of one that the project ships.
        validation: (scores, targets) of other images, or a file, on which temperature and rules are fitted; by default
            halves of the test images are, each for the other.
        against: scores, or a file, of another model for the same images.
        against_validation: as `validation`, of the other model.
        groups: [N] names of what images are of (a specimen, a site): all of a group are drawn together. Of files, the
            name of their column or array.
        name: of the model.
        distance: "height" or "depth", for a tree's file or name; by default height.
        order: of the classes where nothing names them, "tree" or "alphabetical".
        scores_are: "probabilities", "logits" or "votes"; by default what they look like.
        rules: decision rules, as "climbing,darts"; [] for none, which is faster.
        train_counts: training images of each class: {class: number}, [K], or a file.
        resamples: of the bootstrap, at least 100; 0 for no intervals.
        seed: of all draws.

    Returns:
        A report: `.frame(part)`, `.figure(part)`, `.rule`, `.content()`, `.write(path)`; `print` shows it in short.

    Raises:
        UserError: a ValueError: wrong shapes, a target that is no class, other images, too few resamples.
    """
    if tree is None:
        raise ValueError("tree is missing: a Hierarchy, the file of a tree, or the name of one that ships")
    column = groups if isinstance(groups, str) else ""
    members = None if isinstance(groups, str) else groups
    pairs = [(None, None) if pair is None else _pair(pair) for pair in (validation, against_validation)]
    request = ReportRequest(
        files=prediction_arrays(scores, targets, tree, "scores", members),
        tree=tree if isinstance(tree, Hierarchy) else str(tree),
        validation=_several(pairs[0], tree, "validation"),
        against=() if against is None else prediction_arrays(against, _targets(against, targets), tree, "against"),
        against_validation=_several(pairs[1], tree, "against_validation"),
        name=name,
        distance=distance,
        reading=ReadingOptions(order or "unknown", group=column),
        scores=scores_are,
        settings=ReportSettings(
            split_rules(rules) if isinstance(rules, str) else rules,
            whole_number("resamples", resamples, least=0),
            whole_number("seed", seed, least=0),
        ),
        train_counts=Path(train_counts) if isinstance(train_counts, str) else train_counts,
    )
    return report_files(request)


def _pair(pair: Any) -> tuple[Any, Any]:
    """Return scores and targets of a pair of them, or of files that have both."""
    if isinstance(pair, tuple) and len(pair) == 2 and not all(isinstance(each, str | Path) for each in pair):
        return pair
    return pair, None


def _targets(against: Any, targets: Any) -> Any:
    """Return the targets of another model's scores: those of the same images, unless a file has its own."""
    first = against[0] if isinstance(against, list | tuple) else against
    return None if isinstance(first, str | Path) else targets


def _several(pair: tuple[Any, Any], tree: Any, name: str) -> list[Any]:
    return [] if pair[0] is None else prediction_arrays(pair[0], pair[1], tree, name)
