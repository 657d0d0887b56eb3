"""The steps of `hierbench score`: read all files, check them, score them, and record them beside runs of a dataset.

`hierbench.score` does the same with arrays.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hierbench.answers.choices import RuleChoice
from hierbench.config.options import folder_options
from hierbench.config.recipe import Recipe, load_recipe
from hierbench.config.scored_spec import Scored
from hierbench.data.prepared import Prepared, find
from hierbench.data.user.user_dataset import if_current
from hierbench.execution.jobs import dataset_spec
from hierbench.hierarchy.label_tree import Distance, Hierarchy
from hierbench.hierarchy.readers import shipped_names
from hierbench.hierarchy.tree_options import DEFAULT_OPTIONS, TreeOptions
from hierbench.leaderboard.columns import PAPER_COLUMNS, Column, check_columns, further_names
from hierbench.metrics.calibration import ScoreKind
from hierbench.runs.requests import record_request
from hierbench.runs.scored_record import make_scored
from hierbench.runs.store import Store
from hierbench.studies.scoring.alignment import (
    check_differs,
    check_same_examples,
    default_name,
    of_dataset,
    with_targets,
)
from hierbench.studies.scoring.prediction_parts import ASK_FOR_ORDER, Predictions, ReadingOptions
from hierbench.studies.scoring.predictions import Arrays, read_predictions, read_targets
from hierbench.studies.scoring.score_records import check_name, write_records
from hierbench.studies.scoring.score_report import Report
from hierbench.studies.scoring.scores import (
    Result,
    check_resamples,
    further_metrics,
    score,
    score_answers,
    score_definitions,
    score_rules,
)
from hierbench.training.results import environment
from hierbench.utils.console import Meter, say
from hierbench.utils.errors import UserError
from hierbench.utils.text import one_line

SPLIT = "test"
UNNAMED_TREE = "a tree"  # that was given as an array, and has no name


@dataclass(frozen=True)
class ScoreRequest:
    """The options of `hierbench score`; exactly one of dataset and tree is given.

    In place of a file there may be arrays, and in place of a tree's file or name the tree. `scores` says what they are
    where they look otherwise. `rules` and `definitions` ask for their tables in place of the metrics.
    """

    files: Sequence[Path | Arrays]
    dataset: str | None
    tree: str | Hierarchy | None
    targets: Path | None
    name: str | None
    distance: Distance | None
    resamples: int
    seed: int
    runs: Path
    data_dir: Path
    columns: Sequence[Column] = PAPER_COLUMNS
    options: TreeOptions = DEFAULT_OPTIONS
    reading: ReadingOptions = ASK_FOR_ORDER
    scores: ScoreKind | None = None
    rules: Sequence[RuleChoice] = ()
    definitions: Sequence[str] = ()


def score_files(request: ScoreRequest) -> Report:
    """Score files of predictions, one per seed; with a dataset, record them.

    Raises:
        UserError: a file cannot be read, or is not of this data; or too few resamples for an interval.
    """
    check_resamples(request.resamples)
    recipe, prepared, tree = _truth(request)
    check_columns(request.columns, tree)
    name = one_line(request.name or default_name([file for file in request.files if isinstance(file, Path)])).strip()
    if not 0 < len(name) <= 100:
        raise UserError(f"name must have 1 to 100 characters, got {len(name)}")
    resamples = request.resamples if len(request.files) == 1 else 0  # seeds give the interval of several files
    predictions = _read_all(request, prepared, tree)
    results = _score_all(request, predictions, tree, resamples)
    runs = list[str]()
    if recipe is not None and prepared is not None:
        runs = _record_all(request, recipe, prepared, name, resamples, predictions, results)
    subject = recipe.title if recipe else request.tree if isinstance(request.tree, str) else UNNAMED_TREE
    titles = {choice.label: choice.title for choice in request.rules} or {label: label for label in results[0].nodes}
    return Report(name, subject, tree.distance, results, resamples, request.seed, runs, request.columns, titles)


def _read_all(request: ScoreRequest, prepared: Prepared | None, tree: Hierarchy) -> list[Predictions]:
    """Return the predictions of all files, with targets, of the same examples in the same order."""
    extra = None if request.targets is None else read_targets(request.targets, tree, "targets", request.reading.order)
    everything: list[Predictions] = []
    for file in request.files:
        if isinstance(file, Path):
            read = read_predictions(file, tree, request.reading)
        else:
            read = file.predictions(tree, request.reading)
        predictions = with_targets(read, extra, f"targets {request.targets}")
        if prepared is not None:
            if predictions.has_inner_answers:
                raise UserError(
                    f"{predictions.where}: a row of a leaderboard answers with classes; score it with a tree"
                )
            predictions = of_dataset(predictions, prepared, SPLIT)
        elif predictions.targets is None:
            raise UserError(f"{predictions.where} has no targets: give them, or its dataset")
        elif (predictions.targets < 0).all():
            raise UserError(f"{predictions.where}: no target is a class, all are nodes above the classes")
        else:
            check_same_examples((everything or [predictions])[0], predictions)
        for other in everything:
            check_differs(other, predictions)
        everything.append(predictions)
    return everything


def _score_all(
    request: ScoreRequest, predictions: Sequence[Predictions], tree: Hierarchy, resamples: int
) -> list[Result]:
    """Return the numbers of each file: metrics, and what rules and definitions of others give where they are asked."""
    results = list[Result]()
    with Meter("scoring", float(sum(scored.num_examples for scored in predictions))) as meter:
        for scored in predictions:
            if scored.has_inner_answers:
                results.append(score_answers(scored, tree))
                continue
            labelled = scored.labelled_with_classes()
            result = score(labelled, tree, resamples, request.seed, request.scores)
            more = further_metrics(labelled, tree, further_names(request.columns), result.kind)
            results.append(
                replace(
                    result,
                    metrics=result.metrics | more,
                    num_all=scored.num_examples,
                    nodes=score_rules(scored, tree, request.rules, result.kind),
                    defined=score_definitions(labelled, tree, request.definitions, result.kind),
                )
            )
            meter.end_part(scored.where, float(scored.num_examples))
    return results


def _record_all(
    request: ScoreRequest,
    recipe: Recipe,
    prepared: Prepared,
    name: str,
    resamples: int,
    predictions: Sequence[Predictions],
    results: Sequence[Result],
) -> list[str]:
    """Write the records that a leaderboard reads, and the request; return the ids."""
    store = Store(request.runs)
    records = list[Scored]()
    for scored, result in zip(predictions, results, strict=True):
        kind = None if request.scores == result.looks_like else request.scores
        arrays = (scored.scores, scored.classes, scored.true_classes)
        records.append(make_scored(name, dataset_spec(recipe, prepared), *arrays, kind))
    store.check_writable()
    check_name(store, records)
    further = set(further_names(request.columns))  # which readers of records compute when they are asked
    kept = [
        replace(result, metrics={metric: value for metric, value in result.metrics.items() if metric not in further})
        for result in results
    ]
    write_records(store, records, predictions, kept, environment(torch.device("cpu"), prepared))
    files = [file.name if isinstance(file, Path) else "" for file in request.files]
    options = {"dataset": request.dataset, "name": name, "resamples": resamples, "seed": request.seed, "files": files}
    ids = [record.id for record in records]
    record_request(store.root, "scoring", recipe.dataset, options, ids)
    return ids


def find_tree(tree: str | Hierarchy, distance: Distance | None, options: TreeOptions = DEFAULT_OPTIONS) -> Hierarchy:
    """Return a tree, that of a file, or the one that ships under a name.

    Raises:
        UserError: no such tree or file, or it cannot be read.
    """
    if isinstance(tree, Hierarchy):
        if distance is not None:
            raise UserError("distance is for a tree's file or name; this tree has its own")
        return tree
    path = Path(tree)
    if tree in shipped_names() or not (path.suffix or path.exists()):
        return Hierarchy.load(tree, distance or "height")
    try:
        return Hierarchy.read(path, distance=distance or "height", **vars(options))
    except (OSError, ValueError) as error:  # a ValueError names the file
        reason = f"{path}: {error.strerror or error}" if isinstance(error, OSError) else error
        raise UserError(f"tree {reason}") from None


def _truth(request: ScoreRequest) -> tuple[Recipe | None, Prepared | None, Hierarchy]:
    """Return recipe and prepared data of the dataset, or None, and the tree."""
    dataset = request.dataset
    choice = "give either a dataset, whose leaderboard gets a row, or a tree, which only prints metrics"
    if dataset is not None and request.tree is not None:
        raise UserError(choice)
    if request.tree is not None:
        return None, None, find_tree(request.tree, request.distance, request.options)
    if dataset is None:
        raise UserError(choice)
    if request.distance is not None:
        raise UserError("distance is for a tree; that of a dataset is its recipe's")
    recipe = load_recipe(dataset)
    prepared = find(recipe.data.variant, request.data_dir)
    notes = list[str]()
    state = "is not prepared"
    if recipe.source is not None and prepared is not None:
        prepared = if_current(recipe, prepared, notes.append)
        state = "has changed since it was prepared"
    if prepared is None:
        command = f"hierbench data prepare {request.dataset}{folder_options(data_dir=request.data_dir)}"
        raise UserError(f"{recipe.data.dataset} {state} in {request.data_dir}; run: {command}")
    for note in notes:
        say(note)
    return recipe, prepared, prepared.hierarchy(recipe.distance)
