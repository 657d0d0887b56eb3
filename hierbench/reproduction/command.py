"""The command that gives the runs of a row: what their specs say that the recipe does not, as options.

PyTorch is not imported: hyperparameters that the recipe leaves to the method's class are given too, whatever its
defaults are.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

from hierbench.api.code import installed_code
from hierbench.config.options import Options
from hierbench.config.overrides import NAME, override_of
from hierbench.config.pretrained import KNOWN
from hierbench.config.recipe import Recipe, load_recipe, recipe_names, shipped_recipe
from hierbench.config.sections import Protocol
from hierbench.config.source import is_dataset_file
from hierbench.config.spec import CODE_VERSION, Spec
from hierbench.utils.errors import UserError

SECTIONS = ("model", "train", "augment", "evaluation")
APART = {"model.weights", "train.lr"}  # settings that are no plain key of the recipe


def command_of(specs: Sequence[Spec], dataset: str, files: Mapping[str, str] | None = None) -> list[str]:
    """Return the words of the `hierbench run` command that gives the runs of a row: the same ids, and so the same jobs.

    The command gives the seeds from 0 to the last of the row. Where a file of weights was given, it names one by its
    digest, `weights-<first 12 digits>`.

    Args:
        specs: of the runs of one row, or of some of them; for re-ranked runs also those of their bases.
        dataset: its name, or the file of a user's dataset.
        files: {method: file to pass} for methods that are not installed with the code that ran.

    Raises:
        UserError: there is no such command: other code, an unknown dataset, several rows, missing bases.
    """
    rows = rows_of(specs)
    first = rows[0]
    chain = _with_bases(first, {spec.id: spec for spec in specs})
    if first.split != "test":
        raise UserError(f"{first.label} is a run of tuning, which is given by hierbench tune")
    if first.code != CODE_VERSION:
        raise UserError(
            f"made by version {first.code} of the engine's numbers, and this hierbench has {CODE_VERSION}: "
            "install the version that the record names"
        )
    names = _methods(chain, dict(files or {}))
    recipe = _recipe(dataset, first)
    overrides = list(dict.fromkeys(_overrides(recipe, chain)))
    if list(_overrides(_loaded(dataset, first.protocol, tuple(overrides)), chain)):
        raise UserError(f"no options give the settings of {first.label}: its spec is not one that hierbench run makes")
    words = ["hierbench", "run", "--methods", ",".join(names), "--types", first.type, "--dataset", dataset]
    words += ["--protocol", first.protocol] if first.protocol != "paper" else []
    words += ["--seeds", str(max(spec.seed for spec in rows) + 1)]
    words += ["--weights", weights_name(first)] if needs_weights(first) else []
    return words + [word for override in overrides for word in ("--set", override)]


def rows_of(specs: Sequence[Spec]) -> list[Spec]:
    """Return the specs that no other re-ranks, ordered by seed; a UserError unless they are of one row."""
    bases = {base for spec in specs for base in spec.bases}
    tops = sorted((spec for spec in specs if spec.id not in bases), key=lambda spec: spec.seed)
    if not tops:
        raise UserError("no runs to reproduce")
    variants = {spec.model_copy(update={"seed": 0, "base": None}).id for spec in tops}
    if len(variants) > 1:
        labels = sorted({f"{spec.method.name}:{spec.type}" for spec in tops})
        raise UserError(f"runs of {len(variants)} rows ({', '.join(labels)}): a command is of one")
    return tops


def _with_bases(spec: Spec, known: Mapping[str, Spec]) -> list[Spec]:
    """Return a spec and all that it re-ranks, each once; a UserError where one is not known."""
    found = {spec.id: spec}
    for base in spec.bases:
        if base not in known:
            raise UserError(f"{spec.label} re-ranks run {base[:12]}, whose record is not here")
        found |= {one.id: one for one in _with_bases(known[base], known)}
    return list(found.values())


def needs_weights(spec: Spec) -> bool:
    """Whether a file of weights was given to a run."""
    known = KNOWN.get(spec.model.weights)
    other = known is not None and spec.weights is not None and not spec.weights.startswith(known.sha256)
    return spec.model.weights == "file" or other


def weights_name(spec: Spec) -> str:
    """Return what stands for a given file of weights in a command."""
    return f"weights-{(spec.weights or '')[:12]}"


def _methods(chain: Sequence[Spec], files: Mapping[str, str]) -> list[str]:
    """Return what --methods takes: the row's method, and the files of bases that are not installed as they ran."""
    asked = []
    for spec in chain:
        name, code = spec.method.name, spec.method.code
        if not NAME.fullmatch(name):
            raise UserError(f"{name!a} is not the name of a method")
        there = code_here(name)
        if there == code:
            if spec is chain[0]:
                asked.append(name)
        elif name in files:
            asked.append(files[name])
        elif there is None:
            raise UserError(f"{name} is not installed: its file, {name}.py with code {code[:12]}, must be given")
        else:
            raise UserError(f"{name} ran with code {code[:12]}, and the installed file has {there[:12]}")
    return asked


def code_here(name: str) -> str | None:
    """Return the digest of the code of an installed method, None where there is none.

    Of one that another package brings, that package has to be imported.
    """
    if (code := installed_code(name)) is not None or not entry_points(group="hierbench.methods", name=name):
        return code
    from hierbench.api.registry import Found, find_or_broken

    found = find_or_broken(name)
    return found.code if isinstance(found, Found) else None


def _recipe(dataset: str, spec: Spec) -> Recipe:
    if not is_dataset_file(dataset) and dataset not in _shipped_names():
        raise UserError(f"{dataset} is not a built-in dataset: give its file, --dataset ./{dataset}.toml")
    recipe = _loaded(dataset, spec.protocol, ())
    if recipe.dataset != spec.dataset.name:
        raise UserError(f"the runs are of {spec.dataset.name}, not of {recipe.dataset}")
    return recipe


@lru_cache
def _shipped_names() -> frozenset[str]:
    return frozenset(recipe_names())


def _loaded(dataset: str, protocol: Protocol, overrides: tuple[str, ...]) -> Recipe:
    return (load_recipe if is_dataset_file(dataset) else shipped_recipe)(dataset, overrides, protocol)


def _overrides(recipe: Recipe, chain: Sequence[Spec]) -> Iterator[str]:
    """Yield `KEY=VALUE` for what the specs say and the recipe does not; nothing where it gives their ids."""
    for one in chain:
        yield from _of_method(recipe, one)
    spec = chain[0]
    if not spec.model.crops:
        recipe = recipe.model_copy(update={"augment": recipe.augment.normalisation()})
    content, recorded = (one.model_dump(mode="json", by_alias=True) for one in (recipe, spec))
    if spec.dataset.distance != recipe.distance:
        yield override_of("distance", spec.dataset.distance)
    if spec.dataset.jpeg_quality != recipe.data.jpeg_quality:
        yield override_of("data.jpeg_quality", spec.dataset.jpeg_quality)
    by_option = spec.model.weights == "file" and recipe.model.weights == "none"  # as --weights makes it
    is_random = spec.model.frozen and spec.model.weights == "none" and not spec.model.given_features
    weights = "random" if is_random else spec.model.weights
    if weights != recipe.model.weights and not by_option:
        yield override_of("model.weights", weights)
    for section in SECTIONS:
        for name, value in recorded[section].items():
            if f"{section}.{name}" not in APART and value != content[section][name]:
                yield override_of(f"{section}.{name}", value)


def _of_method(recipe: Recipe, spec: Spec) -> Iterator[str]:
    """Yield hyperparameters, and the learning rates of a method that is trained."""
    name = spec.method.name
    given = recipe.params_of(name)
    if odd := sorted(given.keys() - spec.method.params.keys()):
        raise UserError(f"the recipe sets methods.{name}.{odd[0]}, which {spec.label} does not have")
    for key, value in spec.method.params.items():
        # As JSON: 1 and 1.0 are not the same, a tuple and a list are. A null cannot be given, and is the default.
        if json.dumps(given.get(key)) != json.dumps(value):
            yield override_of(f"methods.{name}.{key}", value)
    if spec.bases:
        return
    rates = recipe.rates_of(name, spec.type).model_dump()
    for key, value in spec.train.lr.model_dump().items():
        if rates.get(key) != value:
            yield override_of(f"methods.{name}.lr.{key}", value)


def options_of(command: Sequence[str], **more: Any) -> Options:
    """Return the options of a command from `command_of`; `more` replaces fields or adds others."""
    words: dict[str, Any] = {"overrides": []}
    for option, value in zip(command[2::2], command[3::2], strict=True):
        if option == "--set":
            words["overrides"].append(value)
        elif option != "--weights":
            words[option.removeprefix("--")] = int(value) if option == "--seeds" else value
    return Options(**(words | more))
