"""What a run's method says of its record: its code, title and parameters, the terms of its loss, the epoch it chooses.

Only installed methods are run. A file that came with a run is compared with its digest, and never imported.
"""

import os
from collections.abc import Mapping
from tokenize import TokenError
from typing import Any

import torch

from hierbench.api.method import Method, PostHoc, bases_of
from hierbench.api.registry import Broken, Found, digest_of_code, find_or_broken, is_installed, method_names
from hierbench.config.spec import Spec
from hierbench.experiments.verification.records import Record
from hierbench.hierarchy.tree import Hierarchy
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_bytes

BATCH = 4  # examples, to learn the names of a loss's terms
LARGEST = 4096  # classes for which a method is built to learn them


class Methods:
    """The installed methods, each imported once, and built once per tree."""

    def __init__(self) -> None:
        self._names = frozenset(method_names())  # asking for each name reads the metadata of all packages
        self._found: dict[str, Found | None] = {}
        self._built: dict[tuple[Any, ...], Method | None] = {}
        self._terms: dict[Method, frozenset[str] | None] = {}

    def installed(self, name: str) -> Found | None:
        """Return the installed method of a name, None where there is none that can be imported."""
        if name not in self._found:
            known = name in self._names or (name.startswith("_") and is_installed(name))
            found = find_or_broken(name) if "/" not in name and known else None
            self._found[name] = None if isinstance(found, Broken) else found
        return self._found[name]

    def that_ran(self, spec: Spec) -> Found | None:
        """Return the installed method if its code is that of a run."""
        found = self.installed(spec.method.name)
        return found if found is not None and found.code == spec.method.code else None

    def built(self, found: Found, spec: Spec, tree: Hierarchy) -> Method | None:
        """Return a run's method on its tree, with drawn weights; None where it cannot be built on its own."""
        num_features = _num_features(spec, tree)
        key = (found.code, found.name, num_features, repr(spec.method.params), tree.digest(), tree.distance)
        if key not in self._built:
            self._built[key] = None
            if issubclass(found.cls, Method) and tree.num_classes <= LARGEST:
                try:
                    with torch.random.fork_rng(devices=[]):
                        params: Any = found.params(spec.method.params)
                        self._built[key] = found.cls(tree, num_features, params)
                except Exception:  # a method may raise anything, and may need more than this
                    pass
        return self._built[key]

    def terms(self, method: Method, num_features: int, num_classes: int) -> frozenset[str] | None:
        """Return the names of the terms of a method's loss; None where it needs another batch to say."""
        if method not in self._terms:
            self._terms[method] = None
            try:
                with torch.random.fork_rng(devices=[]):
                    outputs = method(torch.randn(BATCH, num_features))
                    self._terms[method] = frozenset(method.loss(outputs, torch.arange(BATCH) % num_classes))
            except Exception:  # a method may raise anything
                pass
        return self._terms[method]


def check_method(record: Record, tree: Hierarchy | None, methods: Methods) -> None:
    """Compare a run with its method: with the file kept beside it, or the installed one if that is the code that ran.

    Args:
        record: of a job.
        tree: None where it is not here; what needs it is left out.
        methods: the installed ones.
    """
    finding, spec = record.finding, record.spec
    assert spec is not None
    kept = _check_kept_file(record)
    found, installed, method = methods.that_ran(spec), methods.installed(spec.method.name), None
    if found is not None:
        _check_class(record, found)
        if record.trains and tree is not None and (method := methods.built(found, spec, tree)) is not None:
            _check_terms(record, method, tree, methods)
    elif installed is not None and not kept:
        finding.note(
            f"other code: {spec.method.name} ran with code {spec.method.code[:12]}, and the installed file has "
            f"{installed.code[:12]}"
        )
    elif not kept:
        finding.note(f"the code of {spec.method.name} is not here: it is not installed, and not kept with the run")
    if record.trains:
        _check_epoch(record, method)


def _check_kept_file(record: Record) -> bool:
    """Compare the file of a user's own method with the digest in the spec; return whether there is one."""
    spec = record.spec
    assert spec is not None
    name = spec.method.name
    path = record.run.folder / f"{name}.py"
    if "/" in name or not os.path.lexists(path):
        return False
    try:
        same = digest_of_code(read_bytes(path)) == spec.method.code
    except (OSError, SyntaxError, ValueError, TokenError):
        same = False
    if not same:
        record.finding.reject(f"{path.name} beside it is not the code that its spec names")
    return True


def _check_class(record: Record, found: Found) -> None:
    """Compare title, version, type, hyperparameters and bases with the class."""
    finding, spec, cls = record.finding, record.spec, found.cls
    assert spec is not None
    if record.metrics.get("title") != cls.title:
        finding.reject(f"metrics.json is titled {record.metrics.get('title')!r}, and {found.name} is {cls.title!r}")
    if spec.method.version != cls.version:
        finding.reject(f"its version of {found.name} is {spec.method.version!r}, and that code's is {cls.version!r}")
    if spec.type not in cls.types:
        finding.reject(f"{found.name} cannot stand on {spec.type}")
    try:
        if found.params(spec.method.params).model_dump(mode="json") != spec.method.params:
            finding.reject(f"its hyperparameters are not those of {found.name}")
    except UserError as error:
        finding.reject(str(error))
    expected = len(bases_of(cls)) if issubclass(cls, PostHoc) else 0
    if len(spec.bases) != expected:
        finding.reject(f"{found.name} re-ranks {expected} runs, and its spec names {len(spec.bases)}")


def _check_terms(record: Record, method: Method, tree: Hierarchy, methods: Methods) -> None:
    """Compare the loss terms in the history with those of the method."""
    assert record.spec is not None
    terms = methods.terms(method, _num_features(record.spec, tree), tree.num_classes)
    if terms is None or not record.history:
        return
    has = {name.removeprefix("train_") for name in record.history[0] if name.startswith("train_")} - {"loss"}
    if has != terms - {"loss"}:
        shown, right = ", ".join(sorted(has)), ", ".join(sorted(terms))
        record.finding.reject(f"history.csv has the loss terms {shown}, and this method's are {right}")


def _num_features(spec: Spec, tree: Hierarchy) -> int:
    """Return the width of the features; of type I without a layer of its own any will do."""
    return tree.num_classes if spec.type == "type-II" else spec.model.type_i_units or tree.num_classes


def _check_epoch(record: Record, method: Method | None) -> None:
    """Compare the chosen epoch and its validation metrics with the history."""
    finding, metrics, history, spec = record.finding, record.metrics, record.history, record.spec
    assert spec is not None
    if [row.get("epoch") for row in history] != list(range(1, spec.train.epochs + 1)):
        finding.reject(f"history.csv does not have the {spec.train.epochs} epochs of its spec")
        return
    chosen = metrics.get("best_epoch")
    if type(chosen) is not int or not 1 <= chosen <= len(history):
        finding.reject(f"best_epoch is {chosen}")
        return
    rows = [_val(row) for row in history]
    recorded = {name: float("nan") if value is None else value for name, value in metrics.get("val", {}).items()}
    if not _same(recorded, rows[chosen - 1]):
        finding.reject(f"the validation metrics in metrics.json are not those of epoch {chosen} in history.csv")
    if method is None:
        return
    merits = [method.merit(row) for row in rows]
    if any(merit != merit for merit in merits):
        return
    best = merits.index(max(merits)) + 1  # the first of equals
    if best != chosen:
        finding.reject(f"it was tested after epoch {chosen}, and epoch {best} is the best by its validation metrics")


def _val(row: Mapping[str, float]) -> dict[str, float]:
    return {name.removeprefix("val_"): value for name, value in row.items() if name.startswith("val_")}


def _same(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    return one.keys() == other.keys() and all(
        value == other[name] or (value != value and other[name] != other[name]) for name, value in one.items()
    )
