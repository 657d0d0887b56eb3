"""`hierbench run`: plan, prepare, train, re-rank, and publish the leaderboard."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hierbench.data import prepared as data
from hierbench.data.prepared import Prepared
from hierbench.discovery import Broken, Found, find_all, find_or_broken
from hierbench.errors import UserError, unknown_name
from hierbench.files import write_text
from hierbench.leaderboard.board import Board, board_from_runs
from hierbench.leaderboard.render import as_json, markdown
from hierbench.plan import Job, check_request, make_plan
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
    with redirect_stdout(sys.stderr):
        methods, broken = _methods(options.methods)
    check_request(recipe, methods, types)
    options = replace(options, device=_device(options.device))
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

    with redirect_stdout(sys.stderr):  # a method may print; results alone go to standard output
        board, failed = _run(recipe, plan, state, setting, options)
    _publish(board, plan, failed, options)
    return 1 if failed or broken else 0


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


def _methods(text: str) -> tuple[list[Found], int]:
    """Return the methods asked for, and how many can not be imported: those are reported and left out."""
    names = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    found = [item for name in names for item in (find_all() if name == "all" else [find_or_broken(name)])]
    methods = {item.name: item for item in found if isinstance(item, Found)}
    broken = [item for item in found if isinstance(item, Broken)]
    if not methods:
        reasons = "; ".join(item.reason for item in broken)
        raise UserError(reasons or "--methods names no method; use all, or names separated by commas")
    for item in broken:
        say(f"warning: {item.reason}; it is left out")
    return list(methods.values()), len(broken)


def _device(asked: str) -> str:
    """Return where jobs will run; "auto" is a CUDA device if there is one, else the CPU."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    device = ("cuda" if available["cuda"] else "cpu") if asked == "auto" else asked
    if not available[device]:
        raise UserError(f"--device {asked}: this machine, or this build of PyTorch, has none")
    return device


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

    height, width = prepared.meta["image_size"]
    hierarchy = prepared.hierarchy(to_train[0].spec.dataset.distance)
    try:
        return estimate(to_train, hierarchy, (height, width), prepared.size("train"), setting.workers, setting.threads)
    except RuntimeError:  # a model that does not fit in memory: its jobs will say so
        return None


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
    time_needed = "" if not counts["train"] or seconds is None else f"; at least {duration(seconds)} on this machine"
    say(f"{recipe.title}: {len(plan)} jobs, {', '.join(parts)}{time_needed}")
    if options.dry_run:
        for job in plan:
            say(f"  {state[job.id]:8} {job.id[:12]}  {job.spec.label}")


def _work(job: Job) -> float:
    return float(job.spec.train.epochs) if job.trains else RESCORE_WORK


def _run(
    recipe: Recipe, plan: list[Job], state: dict[str, State], setting: Setting, options: Options
) -> tuple[Board, dict[str, str]]:
    """Run what is not cached, mirror it, and return the leaderboard and what failed."""
    uri = options.mlflow or default_uri(options.runs)
    title = f"{options.methods} {time.strftime('%Y-%m-%d %H:%M:%S')}"
    todo = [job for job in plan if state[job.id] != "cached"]
    with Meter(recipe.dataset, max(sum(map(_work, todo)), RESCORE_WORK)) as meter:
        mirror = Mirror(uri, options.runs, recipe.dataset, title, lambda line: meter.say(f"warning: {line}"))

        def ended(job: Job, error: str) -> None:
            meter.end_part(job.spec.label, _work(job))
            if error:
                meter.say(f"failed: {job.spec.label}: {error}")
                mirror.write(job)
                return
            run = Store(setting.runs).run(job.id)
            test, seconds = run.metrics()["test"], run.status["seconds"]
            severity = "-" if test["mistake_severity"] is None else f"{test['mistake_severity']:.2f}"
            meter.say(f"done: {job.spec.label}: top-1 {test['top1']:.2f} %, severity {severity} ({duration(seconds)})")
            mirror.write(job)

        failed: dict[str, str] | None = None
        try:
            failed = run_plan(plan, setting, lambda job, done, total: meter.part(job.spec.label, done, total), ended)
            for job in mirror.missing(plan):  # what an earlier invocation could not mirror
                mirror.write(job)
            board = board_from_runs(recipe.dataset, Store(setting.runs), [job.id for job in plan if job.shown])
            write_text(options.runs / f"leaderboard-{recipe.dataset}.json", as_json(board))
            write_text(options.runs / f"leaderboard-{recipe.dataset}.md", markdown(board))
            mirror.attach(options.runs / f"leaderboard-{recipe.dataset}.md")
        finally:
            mirror.close("KILLED" if failed is None else "FAILED" if failed else "FINISHED")
    return board, failed


def _publish(board: Board, plan: list[Job], failed: dict[str, str], options: Options) -> None:
    print(as_json(board) if options.as_json else f"\n{markdown(board)}", end="", flush=True)
    say(f"\ntables: {options.runs}/leaderboard-{board.dataset}.md and .json; runs: {options.runs}/<id>/")
    if options.mlflow is None and default_uri(options.runs).startswith("sqlite:"):
        say(f"browse: uv run mlflow ui --backend-store-uri {shlex.quote(default_uri(options.runs))}")
    for job in plan:
        if job.id in failed:
            say(f"failed: {job.spec.label}: {failed[job.id]} ({options.runs}/{job.id}/status.json)")
