"""Training: one visible loop on Lightning Fabric, from a job's spec to the files of its run.

Shapes: B batch, N examples, K classes, M places in an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from hierbench.config.sections import STEPS_PER_ROUND, Sampling
from hierbench.data.feature_cache import CacheRequest, find_features
from hierbench.data.feature_split import PIECE, PIECES_AT_A_TIME, open_split
from hierbench.data.loader import Split
from hierbench.data.prepared import Prepared
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import nodes_on
from hierbench.metrics import Tally
from hierbench.models.classifier import FEW_STEPS, Classifier, compile_embedding
from hierbench.models.sync_norm import exclude_from_reduction, gather_rows, synchronise_norms
from hierbench.runs.job import Job
from hierbench.runs.store import HistoryRow, Run
from hierbench.training.checkpoint import Pace, load_checkpoint, no_progress, save_checkpoint
from hierbench.training.fabric import IMAGE_TYPES, make_fabric
from hierbench.training.memory import batch_shapes, count_micro_batches
from hierbench.training.prediction import predict, predict_in_parts
from hierbench.training.results import best_epoch, commit, environment, history_row, write_result
from hierbench.training.step import Step, make_optimizer, new_classifier, set_rates

if TYPE_CHECKING:
    from lightning_fabric import Fabric

Report = Callable[[float, int], None]  # (epochs done, a fraction within one; epochs in all)


class NonFiniteLossError(RuntimeError):
    """The loss became NaN or infinite."""


def seed_for(seed: int, part: int) -> int:
    """Return an independent 63-bit seed for part 0 (initialisation) or 1 + epoch of a run."""
    return int(np.random.SeedSequence([seed, part]).generate_state(1, np.uint64)[0] >> 1)


def train(
    job: Job,
    prepared: Prepared,
    run: Run,
    device: str,
    report: Report,
    weights: Path | None = None,
    after_epoch: Callable[[], None] | None = None,
    gpus: Sequence[int] = (),
    num_ranks: int = 1,
) -> None:
    """Train a job to its end, resuming at its last epoch if it was stopped, and write its result.

    Args:
        job: to be trained.
        prepared: the dataset that its spec names.
        run: where the files go.
        device: "cpu", "cuda" or "mps".
        report: called within and after each epoch.
        weights: the file with the digest of the spec's `weights`.
        after_epoch: called after each epoch, again for epochs that were cut off before a checkpoint.
        gpus: indices of the CUDA devices to use, () for the first ones.
        num_ranks: processes that train together, one device each; this is one of them, see `hierbench.execution.ranks`.

    Raises:
        NonFiniteLossError: naming epoch, step and term.
        OutOfMemoryError: saying how many images at a time would fit.
        UserError: the weights are not those of the spec, or a batch cannot be divided as asked.
    """
    spec = job.spec
    commit()  # now, as the code may be changed while a job trains
    is_library = ":" in spec.model.backbone
    fabric = make_fabric(device, spec.train.precision, gpus, num_ranks, find_unused=is_library)
    torch.backends.cudnn.benchmark = True  # all batches have one shape
    hierarchy = prepared.hierarchy(spec.dataset.distance)
    model = new_model(job, hierarchy, weights, device, num_ranks)
    optimizer = make_optimizer(model, spec.train)
    wrapped, wrapped_optimizer = fabric.setup(model, optimizer)
    step = Step(model.method, wrapped, wrapped_optimizer, fabric.backward)
    train_split, val_split = (_split(fabric, prepared, name, job) for name in ("train", "val"))
    if prepared.has_labels_above:
        model.method.targets_are = "nodes"
        train_split.labels = node_targets(train_split.labels, hierarchy)
    labels = train_split.labels.cpu()
    pace = Pace()
    rows = rows_of_every(labels, spec.train.every)
    batch_size = min(spec.train.batch_size, len(rows))
    num_micro = count_micro_batches(batch_size, spec.train.micro_batch, num_ranks)
    rounds = spec.train.rounds
    steps_of = [len(rows) // batch_size] * rounds  # the last short batch of an epoch is dropped
    if spec.train.steps:
        steps_of = [min(STEPS_PER_ROUND, spec.train.steps - STEPS_PER_ROUND * number) for number in range(rounds)]
    progress = _resume(run, model, optimizer)
    torch.set_num_threads(progress["threads"])  # a resumed run rounds as it did before
    is_unfinished = len(progress["history"]) < rounds and not spec.model.frozen
    if fabric.device.type == "cuda" and is_unfinished and sum(steps_of) >= FEW_STEPS:
        size = spec.model.input_size or prepared.meta["image_size"]
        shapes = batch_shapes(batch_size, num_micro, num_ranks, size)
        compile_embedding(model, shapes, IMAGE_TYPES[spec.train.precision], fabric.autocast)
    history: list[HistoryRow] = progress["history"]
    if history and fabric.is_global_zero:
        run.write_history(history)  # it may be lost, and is not written again after the last epoch
    for epoch in range(len(history), rounds):  # or a part of a training whose length is in steps
        steps = steps_of[epoch]
        first = epoch * STEPS_PER_ROUND if spec.train.steps else epoch
        current = set_rates(optimizer, spec.train, first)
        torch.manual_seed(seed_for(spec.seed, 1 + epoch))  # everything random within an epoch follows from this
        order = rows[order_of_round(labels[rows], steps * batch_size, spec.train.sampling)]
        batches = train_split.train_batches([m for b in order.split(batch_size) for m in b.chunk(num_micro)])
        losses: list[Tensor] = []
        model.train()
        for done in range(1, steps + 1):
            if spec.train.steps:
                set_rates(optimizer, spec.train, first + done - 1)
            elif epoch < spec.train.warmup_epochs:
                set_rates(optimizer, spec.train, epoch, done / steps)
            model.method.progress = (sum(steps_of[:epoch]) + done - 1) / sum(steps_of)
            losses.append(step(islice(batches, num_micro), batch_size))  # no synchronisation within the epoch
            report(epoch + done / steps, rounds)
        mean_terms = average_terms(torch.stack(losses), step.names, epoch)

        metrics = validate(fabric, model, val_split, hierarchy, epoch)
        history.append(history_row(epoch + 1, current, mean_terms, metrics))
        merit = model.method.merit(metrics)
        is_last = epoch + 1 == rounds
        if is_last if spec.evaluation.tested == "last" else merit > progress["best_top1"]:  # the first of equals wins
            best = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
            progress |= {"best_top1": merit, "best_epoch": epoch + 1, "best": best}
        if fabric.is_global_zero:
            last = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            run.guard()  # raises once another process has taken the job over
            if after_epoch is not None:
                after_epoch()
            run.write_history(history)  # before the checkpoint, which marks the epoch as complete
            run.guard()
            pace.save(run.folder / "checkpoint.pt", progress | {"last": last}, is_last=is_last)

    _finish(fabric, model, job, prepared, run, progress)


def new_model(job: Job, hierarchy: Hierarchy, weights: Path | None, device: str, num_ranks: int) -> Classifier:
    """Return the model as the job's seed initialises it, prepared for several ranks where there are."""
    torch.manual_seed(seed_for(job.spec.seed, 0))
    model = new_classifier(job, hierarchy, weights).to(memory_format=torch.channels_last)
    if device == "mps":  # which lacks float64, that a method's tables may have
        model.float()
    if num_ranks > 1:
        synchronise_norms(model)
        exclude_from_reduction(model, model.parameters_without_gradient())
        model.gather = gather_rows
    return model


def _resume(run: Run, model: Classifier, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Load the last complete epoch into model and optimizer; return the progress, which may be empty."""
    progress = load_checkpoint(run.folder / "checkpoint.pt") or no_progress(torch.get_num_threads())
    last = progress.pop("last", None)
    if last is not None:  # absent at the start, and once all epochs are done
        model.load_state_dict(last["model"])
        optimizer.load_state_dict(last["optimizer"])
    return progress


def node_targets(labels: Tensor, tree: Hierarchy) -> Tensor:
    """Return the nodes [N] of training labels [N], classes below K and K + n for the node n above them."""
    num_inner = nodes_on(tree, labels.device).num_inner
    return torch.where(labels < tree.num_classes, num_inner + labels, labels - tree.num_classes)


def rows_of_every(labels: Tensor, every: int) -> Tensor:
    """Return the rows of every n-th image of each class, beginning with the first, labels [N], in ascending order."""
    order = labels.argsort(stable=True)
    counts = labels.bincount()
    place = torch.arange(len(labels)) - (counts.cumsum(0) - counts).repeat_interleave(counts)  # within the class
    return order[place % every == 0].sort().values


def order_of_round(labels: Tensor, num: int, sampling: Sampling) -> Tensor:
    """Return `num` rows in the order of training: an epoch's, or where it takes more than one, whole ones on end."""
    orders = []
    while num > len(labels):
        orders.append(epoch_order(labels, len(labels), sampling))
        num -= len(labels)
    return torch.cat([*orders, epoch_order(labels, num, sampling)])


def epoch_order(labels: Tensor, num: int, sampling: Sampling) -> Tensor:
    """Return the rows [M] of an epoch, drawn by PyTorch's default generator on the CPU, the same on every rank.

    "natural" is a random order of all rows, cut after M. In "balanced", the numbers of rows of two classes differ by at
    most one; within a class, all images are drawn before one is drawn again: no image is drawn two times more often
    than another. In "blocks", pieces of 4,096 neighbouring rows come in a random order, and of 64 at a time the rows
    are shuffled: what lies in one place of a file is read at one time.

    Args:
        labels: [N] int64, on the CPU.
        num: M, at most N.
        sampling: as `train.sampling`.
    """
    if sampling == "natural":
        return torch.randperm(len(labels))[:num]
    if sampling == "blocks":
        firsts = PIECE * torch.randperm(-(-len(labels) // PIECE))
        rows_in_pieces = (firsts[:, None] + torch.arange(PIECE)).flatten()
        pools = rows_in_pieces[rows_in_pieces < len(labels)].split(PIECES_AT_A_TIME * PIECE)
        return torch.cat([pool[torch.randperm(len(pool))] for pool in pools])[:num]
    classes, counts = labels.unique(return_counts=True)  # a class without training images is left out
    places = torch.full((len(classes),), num // len(classes))
    places[torch.randperm(len(classes))[: num % len(classes)]] += 1
    rows = labels.argsort(stable=True).split(counts.tolist())
    drawn = [_draw_rows(class_rows, place) for class_rows, place in zip(rows, places.tolist(), strict=True)]
    return torch.cat(drawn)[torch.randperm(num)]


def _draw_rows(rows: Tensor, num: int) -> Tensor:
    """Return `num` of a class's rows [n]: as many whole random orders as needed, the last one cut."""
    orders = [rows[torch.randperm(len(rows))] for _ in range(-(-num // len(rows)))]
    return torch.cat([rows[:0], *orders])[:num]


def average_terms(losses: Tensor, names: Sequence[str], epoch: int) -> dict[str, float]:
    """Average the epoch's loss terms [steps, terms]; the only host-device sync."""
    losses = losses.cpu()  # not every device has float64
    finite = losses.isfinite()
    if not finite.all():
        step, term = (~finite).nonzero()[0].tolist()
        value = losses[step, term].item()
        raise NonFiniteLossError(f"loss is {value} at epoch {epoch + 1}, step {step + 1}, in the term {names[term]!r}")
    return dict(zip(names, losses.double().mean(dim=0).tolist(), strict=True))


def validate(fabric: Fabric, model: Classifier, split: Split, hierarchy: Hierarchy, epoch: int) -> dict[str, float]:
    """Return the metrics of `hierbench.metrics.evaluate` over a split; all ranks return the same."""
    tally = Tally(hierarchy)
    any_nan = torch.zeros((), dtype=torch.bool, device=split.device)
    for scores, targets in predict_in_parts(fabric, model, split):
        any_nan |= scores.isnan().any()
        tally.add(scores, targets)
    if any_nan:  # the last step's loss was finite, the weights after it are not
        raise NonFiniteLossError(f"scores are nan after epoch {epoch + 1}: the last steps were too large")
    return tally.metrics()


def _finish(
    fabric: Fabric, model: Classifier, job: Job, prepared: Prepared, run: Run, progress: dict[str, Any]
) -> None:
    """Write the result of the best epoch, then its environment."""
    best_row = progress["history"][progress["best_epoch"] - 1]
    title = job.method.cls.title
    cost: dict[str, float] = {"parameters": sum(parameter.numel() for parameter in model.parameters())}
    if job.spec.split == "val":  # tuning: the test set stays out of sight
        if fabric.is_global_zero:
            run.write_record("metrics.json", {"schema": 1, "title": title} | best_epoch(best_row))
    else:
        model.load_state_dict(progress["best"])
        began = time.perf_counter()
        split = _split(fabric, prepared, "test", job)
        scores, targets, levels = predict(fabric, model, split, with_levels=True, folder=run.folder)
        cost["seconds"] = (time.perf_counter() - began) / max(1, len(targets))  # of a test image
        if fabric.is_global_zero:
            tally = Tally(model.method.hierarchy)
            tally.add(scores, targets)
            write_result(run, title, scores, targets, tally, best_row, levels)
    if fabric.is_global_zero:
        run.guard()
        save_checkpoint(run.folder / "checkpoint.pt", progress)  # without optimizer and last epoch
        record = environment(fabric.device, prepared, fabric.world_size)
        record |= {"method_code": job.method.digest, "cost": cost}
        if fabric.device.type == "cuda":
            record["compiled"] = model.compiled_embed is not None
        is_cached = job.spec.model.frozen and not job.spec.model.given_features
        if is_cached and (features := find_features(CacheRequest.by_spec(prepared, job.spec))) is not None:
            record["features"] = features.meta.get("environment")
        run.write_record("environment.json", record)
    fabric.barrier()  # a rank that left earlier would break the others' connections


def _split(fabric: Fabric, prepared: Prepared, name: str, job: Job) -> Split:
    """Return this rank's part of a split."""
    return open_split(prepared, name, job.spec, fabric.device, fabric.global_rank, fabric.world_size)
