"""Training: one visible loop on Lightning Fabric, from a job's spec to the files of its run.

Shapes: B batch, N examples, K classes.
"""

from __future__ import annotations

import math
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from torch import Tensor

from hierbench.checkpoint import load_checkpoint, save_checkpoint
from hierbench.data.augment import Crop, PadAndCrop, RandomResizedCrop, normalise
from hierbench.data.prepared import Prepared
from hierbench.data.source import Labels
from hierbench.hierarchy import Hierarchy
from hierbench.job import Spec
from hierbench.method import Method
from hierbench.metrics import (
    DEFAULT_KS,
    distance_counts,
    evaluate,
    metrics_from_counts,
    mistakes_by_distance,
    usable_ks,
)
from hierbench.models import Classifier, build_classifier
from hierbench.store import HistoryRow, Run

EVAL_BATCH = 256
Report = Callable[[float, int], None]  # (epochs done, a fraction within one; epochs in all)
OnEpoch = Callable[[int, Classifier], None]  # the number of an epoch that is over, from 1; the model after it


class NonFiniteLossError(RuntimeError):
    """The loss became NaN or infinite."""


def seed_for(seed: int, part: int) -> int:
    """Return an independent 63-bit seed for part 0 (initialisation) or 1 + epoch of a run."""
    return int(np.random.SeedSequence([seed, part]).generate_state(1, np.uint64)[0] >> 1)


def learning_rate(initial: float, epoch: int, epochs: int) -> float:
    """Return the cosine-annealed rate of an epoch: initial (1 + cos(pi epoch / epochs)) / 2."""
    return initial * (1.0 + math.cos(math.pi * epoch / epochs)) / 2.0


class Split:
    """One split's images and labels on the device, or the images memory-mapped where they do not fit."""

    def __init__(self, prepared: Prepared, name: str, spec: Spec, device: torch.device) -> None:
        images, labels = prepared.arrays(name)
        self.evaluated = evaluated_rows(labels, spec.evaluation.drop_last)
        with warnings.catch_warnings():  # read-only memory: nothing here writes to it
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            self.images = torch.from_numpy(images)
        self.labels = torch.from_numpy(labels).to(device)
        if device.type == "cuda" and self.images.nbytes < 0.5 * torch.cuda.mem_get_info(device)[0]:
            self.images = self.images.to(device)
        self.device = device
        how = spec.augment
        self.crop: Crop = (
            RandomResizedCrop(how.flip)
            if how.crop == "random-resized"
            else PadAndCrop(how.pad, how.pad_mode, how.flip, how.last_offset)
        )
        self.mean = torch.tensor(spec.augment.mean, device=device)
        self.std = torch.tensor(spec.augment.std, device=device)

    def __len__(self) -> int:
        return len(self.labels)

    def train_batch(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return augmented images [B, 3, H, W] float32 and labels [B] of the given rows."""
        images = self.images
        if images.device != self.device:  # only the batch travels, as bytes
            images, picked = images[rows].to(self.device), torch.arange(len(rows), device=self.device)
        else:
            picked = rows.to(self.device)
        return normalise(self.crop(images, picked), self.mean, self.std), self.labels[rows.to(self.device)]

    def eval_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images [B, 3, H, W] float32 and labels [B] in order, every example that is evaluated once."""
        for start in range(0, len(self), EVAL_BATCH):
            images, labels = self.images[start : start + EVAL_BATCH], self.labels[start : start + EVAL_BATCH]
            if self.evaluated is not None:
                rows = torch.from_numpy(self.evaluated[start : start + EVAL_BATCH])
                images, labels = images[rows.to(images.device)], labels[rows.to(labels.device)]
            yield normalise(images.to(self.device), self.mean, self.std), labels


def evaluated_rows(labels: Labels, drop_last: bool) -> NDArray[np.bool_] | None:
    """Return [N] bool, which examples are evaluated, or None for all.

    With `drop_last` those in the last incomplete batch of 256 in order of class are not, as in the published
    pipeline (FIDELITY row 5); a split that is smaller than a batch is kept whole.
    """
    num_dropped = len(labels) % EVAL_BATCH
    if not drop_last or not num_dropped or num_dropped == len(labels):
        return None
    evaluated = np.ones(len(labels), dtype=np.bool_)
    evaluated[np.argsort(labels, kind="stable")[-num_dropped:]] = False
    return evaluated


def train(
    spec: Spec,
    method: type[Method],
    prepared: Prepared,
    run: Run,
    device: str,
    report: Report,
    weights: Path | None = None,
    on_epoch: OnEpoch | None = None,
) -> None:
    """Train a job to its end, going on from its last epoch if it was stopped, and write its result.

    Args:
        spec: what to train.
        method: the class that `spec.method` names.
        prepared: the dataset that `spec.dataset` names.
        run: where the files go.
        device: a Fabric accelerator: "cpu", "cuda", "mps" or "auto".
        report: called within and after each epoch.
        weights: the file whose digest is `spec.weights`; None where that is None.
        on_epoch: called after each epoch; again for one that was cut off before its checkpoint.

    Raises:
        NonFiniteLossError: naming epoch, step and term.
        UserError: the weights are not those of the spec.
    """
    fabric = Fabric(accelerator=device, devices=1, precision="32-true")
    hierarchy = prepared.hierarchy(spec.dataset.distance)
    torch.manual_seed(seed_for(spec.seed, 0))
    model = build_classifier(
        method,
        hierarchy,
        spec.type,
        spec.model,
        method.Params.model_validate(spec.method.params),
        weights,
    ).to(memory_format=torch.channels_last)
    rates = spec.train.lr.model_dump()
    optimizer = torch.optim.SGD(
        [{"params": group, "name": name} for name, group in model.parameter_groups().items() if group],
        lr=1.0,  # set per group and epoch below
        momentum=spec.train.momentum,
        weight_decay=spec.train.weight_decay,
        fused=True,
    )
    wrapped, wrapped_optimizer = fabric.setup(model, optimizer)
    train_split = Split(prepared, "train", spec, fabric.device)
    val_split = Split(prepared, "val", spec, fabric.device)
    batch_size = min(spec.train.batch_size, len(train_split))
    steps, epochs = len(train_split) // batch_size, spec.train.epochs

    progress = _resume(run, model, optimizer)
    torch.set_num_threads(progress["threads"])  # a resumed run rounds as it did before
    history: list[HistoryRow] = progress["history"]
    for epoch in range(len(history), epochs):
        current = {name: learning_rate(rate, epoch, epochs) for name, rate in rates.items()}
        for group in optimizer.param_groups:
            group["lr"] = current[group["name"]]
        torch.manual_seed(seed_for(spec.seed, 1 + epoch))  # everything random within an epoch follows from this
        order = torch.randperm(len(train_split))
        losses: list[Tensor] = []
        model.train()
        for step in range(steps):  # the last short batch is dropped
            images, targets = train_split.train_batch(order[step * batch_size : (step + 1) * batch_size])
            terms = model.method.loss(wrapped(images), targets)
            values = torch.stack(list(terms.values()))
            wrapped_optimizer.zero_grad()
            fabric.backward(values.sum())
            wrapped_optimizer.step()
            losses.append(values.detach())  # stays on the device: no synchronisation within the epoch
            report(epoch + (step + 1) / steps, epochs)
        mean_terms = _mean_terms(torch.stack(losses), list(terms), epoch)

        metrics = validate(model, val_split, hierarchy, epoch)
        row: HistoryRow = {"epoch": epoch + 1}
        row |= {f"lr_{name}": rate for name, rate in current.items()}
        row |= {"train_loss": sum(mean_terms.values())}
        row |= {f"train_{name}": value for name, value in mean_terms.items()}
        row |= {f"val_{name}": value for name, value in metrics.items()}
        history.append(row)
        if metrics["top1"] > progress["best_top1"]:  # strictly: the first of equals wins
            best = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
            progress |= {"best_top1": metrics["top1"], "best_epoch": epoch + 1, "best": best}
        last = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        run.guard()  # what follows is written only while the job is still this process'
        if on_epoch is not None:
            on_epoch(epoch + 1, model)
        run.write_history(history)  # before the checkpoint, which says that the epoch is whole
        run.guard()
        save_checkpoint(run.folder / "checkpoint.pt", progress | {"last": last})

    best_row = history[progress["best_epoch"] - 1]
    if spec.split == "val":  # tuning: the test set stays out of sight
        run.write_record("metrics.json", {"schema": 1, "title": method.title} | best_epoch(best_row))
    else:
        model.load_state_dict(progress["best"])
        scores, targets = predict(model, Split(prepared, "test", spec, fabric.device))
        write_result(run, method.title, scores, targets, hierarchy, best_row)
    run.guard()
    save_checkpoint(run.folder / "checkpoint.pt", progress)  # without optimizer and last epoch
    run.write_record("environment.json", environment(fabric.device, prepared))


def _resume(run: Run, model: Classifier, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Load the last whole epoch into model and optimizer; return the progress, empty if there is none to go on from."""
    progress = load_checkpoint(run.folder / "checkpoint.pt")
    if progress is None or not progress["history"]:
        threads = torch.get_num_threads() if progress is None else progress["threads"]
        return {"history": [], "best_top1": -math.inf, "best_epoch": 0, "best": {}, "threads": threads}
    if (last := progress.pop("last", None)) is not None:  # gone once all epochs are done
        model.load_state_dict(last["model"])
        optimizer.load_state_dict(last["optimizer"])
    run.write_history(progress["history"])  # it may have been lost, and is not written again after the last epoch
    return progress


def _mean_terms(losses: Tensor, names: Sequence[str], epoch: int) -> dict[str, float]:
    """Average the epoch's loss terms [steps, terms]; the only point where the device is waited for."""
    finite = losses.isfinite()
    if not finite.all():
        step, term = (~finite).nonzero()[0].tolist()
        value = losses[step, term].item()
        raise NonFiniteLossError(f"loss is {value} at epoch {epoch + 1}, step {step + 1}, in the term {names[term]!r}")
    return dict(zip(names, losses.double().mean(dim=0).tolist(), strict=True))


@torch.inference_mode()
def validate(model: Classifier, split: Split, hierarchy: Hierarchy, epoch: int) -> dict[str, float]:
    """Return the metrics of `hierbench.metrics.evaluate` over a split."""
    model.eval()
    ks = usable_ks(DEFAULT_KS, hierarchy.num_classes)
    counts = torch.zeros(2 + len(ks), dtype=torch.int64, device=split.device)
    for images, labels in split.eval_batches():
        scores = model.method.scores(model(images))
        if scores.isnan().any():  # the last step's loss was finite, what it did to the weights is not
            raise NonFiniteLossError(f"scores are nan after epoch {epoch + 1}: the last steps were too large")
        counts += distance_counts(scores, labels, hierarchy, ks)
    return metrics_from_counts(counts.tolist(), ks)


@torch.inference_mode()
def predict(model: Classifier, split: Split) -> tuple[Tensor, Tensor]:
    """Return scores [N, K] float32 and targets [N] of a split's evaluated examples, on the CPU."""
    model.eval()
    batches = [
        (model.method.scores(model(images)).float().cpu(), labels.cpu()) for images, labels in split.eval_batches()
    ]
    return torch.cat([scores for scores, _ in batches]), torch.cat([labels for _, labels in batches])


def write_result(
    run: Run, title: str, scores: Tensor, targets: Tensor, hierarchy: Hierarchy, best: HistoryRow | None = None
) -> None:
    """Write predictions and metrics of a run; `best` is the history row of the epoch that was chosen."""
    run.write_predictions(scores.numpy(), targets.numpy())
    metrics: dict[str, Any] = {
        "schema": 1,
        "title": title,
        "test": evaluate(scores, targets, hierarchy),
        "mistakes_by_distance": mistakes_by_distance(scores, targets, hierarchy),
    }
    run.write_record("metrics.json", metrics | ({} if best is None else best_epoch(best)))


def best_epoch(row: HistoryRow) -> dict[str, Any]:
    """Return the validation metrics of the epoch that was chosen, and its number, from its row of the history."""
    val = {name.removeprefix("val_"): value for name, value in row.items() if name.startswith("val_")}
    return {"val": val, "best_epoch": int(row["epoch"])}


def environment(device: torch.device, prepared: Prepared | None = None) -> dict[str, Any]:
    """Return what a result was computed with; it is kept, and not part of the id."""
    data = {} if prepared is None else {"data": {"splits": prepared.meta["splits"], "remark": prepared.meta["remark"]}}
    packages = ("hierbench", "torch", "torchvision", "numpy", "scipy", "lightning-fabric")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "threads": torch.get_num_threads(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        **{package: version(package) for package in packages},
        **data,
    }
