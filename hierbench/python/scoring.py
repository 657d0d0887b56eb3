"""`hierbench.score`: predictions made elsewhere, as arrays or files, scored as `hierbench score` does."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hierbench.answers.choices import parse_choices, split_rules
from hierbench.answers.definitions import checked_sources
from hierbench.hierarchy.class_names import ClassOrder, column_labels, refuse_labels, rows_in_order, scores_by_class
from hierbench.hierarchy.label_tree import Distance, Hierarchy
from hierbench.metrics.calibration import ScoreKind
from hierbench.python.boards import parse_columns, whole_number
from hierbench.studies.scoring.prediction_parts import ReadingOptions
from hierbench.studies.scoring.predictions import Arrays
from hierbench.studies.scoring.score_files import ScoreRequest, score_files
from hierbench.studies.scoring.score_report import Report
from hierbench.utils.errors import UserError


def score(
    scores: Any,
    targets: Any = None,
    tree: Hierarchy | str | Path | None = None,
    *,
    dataset: str | Path | None = None,
    name: str | None = None,
    metrics: str | Sequence[str] | None = None,
    distance: Distance | None = None,
    resamples: int = 1000,
    seed: int = 0,
    runs: str | Path = "runs",
    data_dir: str | Path = "data",
    order: ClassOrder | None = None,
    scores_are: ScoreKind | None = None,
    use: Literal["answers", "scores"] | None = None,
    ignore: Sequence[str] = (),
    skip_unlabelled: bool = False,
    rules: str | Sequence[str] = (),
    definitions: str | Sequence[str] = (),
) -> Report:
    """Return the metrics of predictions with 95% intervals; with a dataset, add a row to its leaderboard.

    Exactly one of `tree` and `dataset` is given. With `dataset` the predictions are of its test images, in their order
    or with ids in the file, and are recorded in `runs`.

    Args:
        scores: [N, K], larger = ranked earlier, a column per class in the tree's order or, in a data frame, as named:
            an array, a tensor, a data frame, or a file of predictions (.npz .npy .csv .parquet .json). A list of
            several is a row's seeds: the interval is then over seeds, else over images (bootstrap).
        targets: [N], class indices or names, or a file of them; by default those of the file or of the dataset. A name
            of a node above the classes counts in the metrics of nodes, see `rules`, and not in those of classes.
        tree: a `Hierarchy`, the file of a tree, or the name of one that the project ships.
        dataset: a prepared dataset: its name, or the file of yours.
        name: of the row; by default the common part of the files' names, or "predictions".
        metrics: columns, as "hf_macro,ece" or ["hf_macro", "ece"]; with + before each they are added to the paper's.
        distance: "height" or "depth", for a tree's file or name; by default height.
        resamples: of the bootstrap, at least 100; 0 for no interval.
        seed: of the resamples.
        runs: folder of all runs, for a dataset.
        data_dir: folder of prepared datasets.
        order: of the classes where nothing names them: "tree", or "alphabetical" as those of ImageFolder and timm; by
            default an error where the two differ.
        scores_are: "probabilities", "logits" or "votes"; by default what they look like.
        use: the answers or the scores of a file that has both and in which they disagree.
        ignore: columns or arrays of a file that are left out.
        skip_unlabelled: leave out rows without a target.
        rules: decision rules whose answers are scored in place of the metrics, as "majority,climbing:threshold=0.8".
        definitions: sources by whose definitions numbers are printed in place of the metrics, as "hiclass,mbm", or all.

    Returns:
        A report, which a notebook shows as a table and `print` as markdown: `report["mistake_severity"]` is a value,
        `report.frame()` a table for pandas.

    Raises:
        UserError: a ValueError: wrong shapes, a target that is no class, a score that is NaN, an unknown metric.
    """
    resamples = whole_number("resamples", resamples, least=0)
    seed = whole_number("seed", seed, least=0)
    from_file = targets if isinstance(targets, str | Path) else None
    files = prediction_arrays(scores, targets, tree, "scores", with_ids=dataset is not None)
    if not any(isinstance(file, Path) for file in files):
        name = name or "predictions"
    request = ScoreRequest(
        files,
        None if dataset is None else str(dataset),
        tree if tree is None or isinstance(tree, Hierarchy) else str(tree),
        None if from_file is None else Path(from_file),
        name,
        distance,
        resamples,
        seed,
        Path(runs),
        Path(data_dir),
        parse_columns(metrics),
        reading=ReadingOptions(order or "unknown", use, ignore, skip_unlabelled),
        scores=scores_are,
        rules=parse_choices(split_rules(rules) if isinstance(rules, str) else rules),
        definitions=checked_sources(definitions.split(",") if isinstance(definitions, str) else definitions),
    )
    return score_files(request)


def prediction_arrays(
    scores: Any, targets: Any, tree: Any, name: str, groups: Any = None, *, with_ids: bool = False
) -> list[Path | Arrays]:
    """Return predictions of one or several seeds, as files or arrays; their names begin errors.

    Targets that are a file are left for later.
    """
    several = isinstance(scores, list | tuple) and all(_is_one(item) for item in scores) and len(scores) > 0
    score_list = list(scores) if several else [scores]
    from_file = targets if isinstance(targets, str | Path) else None
    files: list[Path | Arrays] = []
    for number, item in enumerate(score_list):
        if isinstance(item, str | Path):
            if targets is not None and from_file is None:
                raise UserError(f"{item}: targets of a file of predictions are in it, or in a file")
            files.append(Path(item))
        else:
            where = f"{name} {number}" if len(score_list) > 1 else name
            true = None if targets is None or from_file is not None else rows_in_order(item, targets, where)
            labels = column_labels(item, tree if isinstance(tree, Hierarchy) else None, where)
            ids = _text_index(item) if with_ids else None
            if np.ma.is_masked(true) or np.ma.is_masked(groups):
                raise UserError(f"{where}: a target or group is masked")
            arrays = [None if part is None else _array(part, where) for part in (true, groups)]
            files.append(Arrays(where, _array(item, where), arrays[0], labels, ids, arrays[1]))
    return files


def _is_one(item: Any) -> bool:
    """Whether it is the predictions of one seed: a file or a matrix."""
    return isinstance(item, str | Path) or getattr(item, "ndim", 0) == 2


def _text_index(scores: Any) -> list[str] | None:
    """Return the names of examples that a data frame has as its index."""
    index = getattr(scores, "index", None)
    if index is None or callable(index) or not all(isinstance(label, str) for label in index):
        return None
    return list(index)


def _array(values: Any, name: str) -> NDArray[Any]:
    """Return an array of a list, a pandas object or a tensor on any device; what is masked is -inf."""
    refuse_labels(values, name)
    if isinstance(values, np.ma.MaskedArray):
        return np.asarray(scores_by_class(values, None, name))
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if values.dtype.is_floating_point and values.dtype.itemsize < 4:
            values = values.float()  # NumPy has no bfloat16
    return np.asarray(values)
