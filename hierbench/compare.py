"""`hierbench run`: plan, prepare, train, re-rank, and publish the leaderboard."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hierbench.data import prepared as data
from hierbench.data.prepared import Prepared
from hierbench.discovery import Broken, Found, find_all, find_method
from hierbench.errors import UserError, unknown_name
from hierbench.files import write_text
from hierbench.leaderboard.board import Board, board_from_runs
from hierbench.leaderboard.render import as_json, markdown
from hierbench.plan import Job, make_plan
from hierbench.progress import Meter, duration
from hierbench.recipe import FEATURE_TYPES, FeatureType, Recipe, load_recipe
from hierbench.runner import Setting, State, default_workers, run_plan, states
from hierbench.store import Store
from hierbench.tracking import Mirror, default_uri

RESCORE_WORK = 0.2  # of an epoch: what re-ranking counts in the progress bar


@dataclass(frozen=True)
class Options:
    """The command's options."""

    methods: str
    dataset: str
    types: str
    seeds: int | None
    overrides: Sequence[str]
    runs: Path
    data_dir: Path
    device: str
    workers: int | None
    mlflow: str | None
    dry_run: bool
    as_json: bool


def say(line: str) -> None:
    """Tell the user something; results alone go to standard output."""
    print(line, file=sys.stderr, flush=True)


def compare(options: Options) -> int:
    """Run the command and return its exit code: 0, or 1 where a job failed."""
    recipe = load_recipe(options.dataset, options.overrides)
    seeds = recipe.seeds if options.seeds is None else options.seeds
    if seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {seeds}")
    if options.workers is not None and options.workers < 1:
        raise UserError(f"--jobs must be at least 1, got {options.workers}")
    types = _types(options.types)
    methods = _methods(options.methods)
    store = Store(options.runs)

    if options.dry_run:
        prepared = data.find(recipe.dataset, options.data_dir)
    else:
        store.writable()
        prepared = prepare_with_progress(recipe.dataset, options.data_dir)
    if prepared is None:
        return _dry_run_without_data(recipe, options, methods, types, seeds)
    plan = make_plan(recipe, prepared, methods, types, seeds)
    setting = _setting(options, plan)
    state = states(plan, store)
    seconds = _estimate(plan, state, prepared, setting)
    _show_plan(recipe, plan, state, seconds, options)
    if options.dry_run:
        return 0

    failed = _run(recipe, plan, state, setting, options)
    board = board_from_runs(recipe.dataset, store, [job.id for job in plan if job.shown])
    _publish(board, plan, failed, options)
    return 1 if failed else 0


def prepare_with_progress(name: str, data_dir: Path, source: Path | None = None, *, force: bool = False) -> Prepared:
    """Prepare a dataset if need be, with a progress bar."""
    with Meter(f"preparing {name}", 1.0) as meter:
        prepared = data.prepare(
            name, data_dir, source, lambda done, total: meter.part("images", done / total, 1.0), force=force
        )
    if remark := prepared.meta["remark"]:
        say(f"note: {remark}")
    return prepared


def _types(text: str) -> list[FeatureType]:
    asked = [part.strip() for part in text.split(",") if part.strip()]
    for name in asked:
        if name not in FEATURE_TYPES:
            raise unknown_name("type", name, FEATURE_TYPES)
    if not asked:
        raise UserError("--types names no type; known: type-I, type-II")
    return [known for known in FEATURE_TYPES if known in asked]


def _methods(text: str) -> list[Found]:
    """Return the methods asked for; with "all", one that can not be imported is reported and left out."""
    if text.strip() != "all":
        names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not names:
            raise UserError("--methods names no method; use all, or names separated by commas")
        return [find_method(name) for name in names]
    methods = []
    for found in find_all():
        if isinstance(found, Broken):
            say(f"warning: {found.reason}; it is left out")
        else:
            methods.append(found)
    return methods


def _setting(options: Options, plan: list[Job]) -> Setting:
    workers, threads = default_workers(plan, options.device)
    setting = Setting(options.runs.resolve(), options.data_dir.resolve(), options.device, workers, threads)
    if options.workers is None:
        return setting
    cores = workers * threads if threads else 1
    return replace(setting, workers=options.workers, threads=max(1, cores // options.workers) if threads else None)


def _estimate(plan: list[Job], state: dict[str, State], prepared: Prepared, setting: Setting) -> float | None:
    to_train = [job for job in plan if state[job.id] == "train"]
    if not to_train:
        return 0.0
    if setting.threads is None:
        return None  # on an accelerator: timing it would mean taking it
    from hierbench.estimate import estimate

    recipe = to_train[0].spec
    height, width = prepared.meta["image_size"]
    hierarchy = prepared.hierarchy(recipe.dataset.distance)
    return estimate(to_train, hierarchy, (height, width), prepared.size("train"), setting.workers, setting.threads)


def _dry_run_without_data(
    recipe: Recipe, options: Options, methods: list[Found], types: list[FeatureType], seeds: int
) -> int:
    """Say what would run, although ids and times can not be known before the data is there."""
    jobs = [
        {"method": found.name, "type": kind, "seed": seed, "state": "blocked", "id": None}
        for seed in range(seeds)
        for kind in types
        for found in methods
        if kind in found.cls.types
    ]
    reason = f"{recipe.dataset} is not prepared in {options.data_dir}"
    if options.as_json:
        print(json.dumps({"schema": 1, "dataset": recipe.dataset, "blocked": reason, "jobs": jobs}, indent=1))
    else:
        say(f"{recipe.title}: {len(jobs)} jobs, all blocked: {reason}; run: hierbench data prepare {recipe.dataset}")
    return 0


def _show_plan(
    recipe: Recipe, plan: list[Job], state: dict[str, State], seconds: float | None, options: Options
) -> None:
    counts = Counter(state.values())
    if options.dry_run and options.as_json:
        jobs = [
            {
                "id": job.id,
                "method": job.spec.method.name,
                "type": job.spec.type,
                "seed": job.spec.seed,
                "state": state[job.id],
                "base": job.spec.base,
            }
            for job in plan
        ]
        content = {"schema": 1, "dataset": recipe.dataset, "estimated_seconds": seconds, "jobs": jobs}
        print(json.dumps(content, indent=1))
        return
    parts = [f"{counts['train']} to train", f"{counts['rescore']} to re-rank", f"{counts['cached']} cached"]
    time_needed = "" if not counts["train"] or seconds is None else f"; about {duration(seconds)} on this machine"
    say(f"{recipe.title}: {len(plan)} jobs, {', '.join(parts)}{time_needed}")
    if options.dry_run:
        for job in plan:
            say(f"  {state[job.id]:8} {job.id[:12]}  {job.spec.label}")


def _work(job: Job) -> float:
    return float(job.spec.train.epochs) if job.trains else RESCORE_WORK


def _run(
    recipe: Recipe, plan: list[Job], state: dict[str, State], setting: Setting, options: Options
) -> dict[str, str]:
    uri = options.mlflow or default_uri(options.runs)
    title = f"{options.methods} {time.strftime('%Y-%m-%d %H:%M:%S')}"
    todo = [job for job in plan if state[job.id] != "cached"]
    with Meter(recipe.dataset, max(sum(map(_work, todo)), RESCORE_WORK)) as meter:
        mirror = Mirror(uri, options.runs, recipe.dataset, title, lambda line: meter.say(f"warning: {line}"))

        def ended(job: Job, error: str) -> None:
            meter.end_part(job.spec.label, _work(job))
            if error:
                meter.say(f"failed: {job.spec.label}: {error}")
                return
            run = Store(setting.runs).run(job.id)
            test, seconds = run.metrics()["test"], run.status["seconds"]
            severity = "-" if test["mistake_severity"] is None else f"{test['mistake_severity']:.2f}"
            meter.say(f"done: {job.spec.label}: top-1 {test['top1']:.2f} %, severity {severity} ({duration(seconds)})")
            mirror.write(job)

        failed = run_plan(plan, setting, lambda job, done, total: meter.part(job.spec.label, done, total), ended)
        if uri != "off":
            for job in mirror.missing(plan):  # what an earlier invocation could not mirror
                mirror.write(job)
    shown = [job.id for job in plan if job.shown]
    board = board_from_runs(recipe.dataset, Store(setting.runs), shown)
    path = options.runs / f"leaderboard-{recipe.dataset}.json"
    write_text(path, as_json(board))
    mirror.close(path, failed=bool(failed))
    return failed


def _publish(board: Board, plan: list[Job], failed: dict[str, str], options: Options) -> None:
    table = markdown(board)
    write_text(options.runs / f"leaderboard-{board.dataset}.md", table)
    print(as_json(board) if options.as_json else f"\n{table}", end="", flush=True)
    say(f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/")
    if options.mlflow is None and default_uri(options.runs).startswith("sqlite:"):
        say(f"browse: mlflow ui --backend-store-uri {shlex.quote(default_uri(options.runs))}")
    for job in plan:
        if job.id in failed:
            say(f"failed: {job.spec.label}: {failed[job.id]} ({options.runs}/{job.id}/status.json)")
