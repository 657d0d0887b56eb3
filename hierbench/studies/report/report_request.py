"""From files or arrays to a report: reading them, and computing it.

Shapes: N images, K classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hierbench.hierarchy.label_tree import Distance, Hierarchy
from hierbench.hierarchy.tree_options import DEFAULT_OPTIONS, TreeOptions
from hierbench.metrics.calibration import ScoreKind
from hierbench.studies.report.mistakes import read_train_counts
from hierbench.studies.report.model_report import DEFAULT_SETTINGS, ModelReport, ReportSettings, make_report
from hierbench.studies.report.scored_images import ScoredImages, of_predictions
from hierbench.studies.scoring.alignment import default_name, with_targets
from hierbench.studies.scoring.prediction_parts import ASK_FOR_ORDER, ReadingOptions
from hierbench.studies.scoring.predictions import Arrays, read_predictions, read_targets
from hierbench.studies.scoring.score_files import UNNAMED_TREE, find_tree
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

Files = Sequence[Path | Arrays]


@dataclass(frozen=True)
class ReportRequest:
    """The options of `hierbench report`, of files or arrays: a file per seed.

    Attributes:
        files: of the model.
        validation: of it, as many; () to fit rules on halves of the files.
        against: of another model, of the same images.
        against_validation: of the other model.
        tree: a tree, the file of one, or the name of one that ships.
        targets: a file of the targets of `files` and `against`, where these have none.
        name: of the model.
        distance: of the tree, where it is not a `Hierarchy`.
        options: of the tree's file.
        reading: how files are read.
        scores: what scores are, where they look otherwise.
        settings: rules and draws.
        train_counts: training images of each class, see `mistakes.read_train_counts`.
    """

    files: Files
    tree: str | Hierarchy
    validation: Files = ()
    against: Files = ()
    against_validation: Files = ()
    targets: Path | None = None
    name: str | None = None
    distance: Distance | None = None
    options: TreeOptions = DEFAULT_OPTIONS
    reading: ReadingOptions = ASK_FOR_ORDER
    scores: ScoreKind | None = None
    settings: ReportSettings = DEFAULT_SETTINGS
    train_counts: Path | Mapping[str, int] | Any = None


def report_files(request: ReportRequest) -> ModelReport:
    """Read the files of a request and compute its report.

    Raises:
        UserError: a file cannot be read, or is of other images; or too few resamples for an interval.
    """
    if request.against_validation and not request.against:
        raise UserError("validation files of another model need its test files: give against")
    tree = find_tree(request.tree, request.distance, request.options)
    counts = read_train_counts(request.train_counts, tree)
    sides = [_read(files, request, tree, request.targets) for files in (request.files, request.against) if files]
    validations = [_read(files, request, tree, None) for files in (request.validation, request.against_validation)]
    names = [_name(request.files, request.name or "A"), _name(request.against, "B")]
    if request.name:
        names[0] = one_line(request.name)
    if names[0] == names[1]:
        names[1] += " (B)"
    subject = UNNAMED_TREE if isinstance(request.tree, Hierarchy) else Path(request.tree).stem
    return make_report(tree, subject, names[: len(sides)], sides, validations, request.settings, counts)


def _name(files: Files, otherwise: str) -> str:
    paths = [file for file in files if isinstance(file, Path)]
    return one_line(default_name(paths)) if paths else otherwise


def _read(files: Files, request: ReportRequest, tree: Hierarchy, targets: Path | None) -> list[ScoredImages]:
    extra = None if targets is None else read_targets(targets, tree, "targets", request.reading.order)
    images = list[ScoredImages]()
    for file in files:
        if isinstance(file, Path):
            read = read_predictions(file, tree, request.reading)
        else:
            read = file.predictions(tree, request.reading)
        images.append(of_predictions(with_targets(read, extra, f"targets {targets}"), tree, request.scores))
    return images
