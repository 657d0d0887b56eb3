"""The command that gives the runs of a row: what their specs say that the recipe does not, as options.

PyTorch is not imported: hyperparameters that the recipe leaves to the method's class are given too, whatever its
defaults are.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.metadata import entry_points
from typing import Any

from hierbench.api.code import installed_code
from hierbench.config.overrides import NAME, override_of
from hierbench.config.pretrained import KNOWN
from hierbench.config.recipe import Recipe, load_recipe, recipe_names, shipped_recipe
from hierbench.config.sections import Protocol
from hierbench.config.source import is_dataset_file
from hierbench.config.spec import CODE_VERSION, Spec, TrainSpec
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
    _prove(chain, dataset, tuple(overrides))
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
    """Yield `KEY=VALUE` for what the specs say and the recipe does not."""
    for one in chain:
        yield from _of_method(recipe, one)
    spec, content = chain[0], _content(recipe)
    recorded = spec.model_dump(mode="json", by_alias=True)
    if spec.dataset.distance != recipe.distance:
        yield override_of("distance", spec.dataset.distance)
    if spec.dataset.jpeg_quality != recipe.data.jpeg_quality:
        yield override_of("data.jpeg_quality", spec.dataset.jpeg_quality)
    if spec.model.weights != recipe.model.weights and not (needs_weights(spec) and recipe.model.weights == "none"):
        yield override_of("model.weights", spec.model.weights)
    for section in SECTIONS:
        for name, value in recorded[section].items():
            key = f"{section}.{name}"
            if key in APART or (section == "augment" and name not in ("mean", "std") and not spec.model.crops):
                continue
            if value != content[section][name]:
                yield override_of(key, value)


def _of_method(recipe: Recipe, spec: Spec) -> Iterator[str]:
    """Yield hyperparameters, and the learning rates of a method that is trained."""
    name = spec.method.name
    given = recipe.params_of(name)
    for key, value in spec.method.params.items():
        if key not in given or not _same(given[key], value):
            if value is not None:  # what cannot be given is the default, or `_prove` says so
                yield override_of(f"methods.{name}.{key}", value)
    if spec.bases:
        return
    rates = recipe.rates_of(name, spec.type).model_dump()
    for key, value in spec.train.lr.model_dump().items():
        if rates.get(key) != value:
            yield override_of(f"methods.{name}.lr.{key}", value)


def _content(recipe: Recipe) -> dict[str, Any]:
    return recipe.model_dump(mode="json", by_alias=True)


def _same(one: Any, other: Any) -> bool:
    """Whether two values of JSON are the same, with lists for tuples; 1 and true are not."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and bool(one == other)


def _prove(chain: Sequence[Spec], dataset: str, overrides: tuple[str, ...]) -> None:
    """Raise a UserError unless the recipe with these overrides gives the specs' ids."""
    changed = _loaded(dataset, chain[0].protocol, overrides)
    made: dict[str, str] = {}  # {recorded id: that of the recipe}
    for spec in reversed(chain):
        made[spec.id] = _respecified(spec, changed, chain, made).id
    if any(recorded != planned for recorded, planned in made.items()):
        wrong = next(spec.label for spec in chain if made[spec.id] != spec.id)
        raise UserError(f"no options give the settings of {wrong}: its spec is not one that hierbench run makes")


def _respecified(spec: Spec, recipe: Recipe, chain: Sequence[Spec], made: Mapping[str, str]) -> Spec:
    """Return the spec that planning makes of a recipe for the same method, seed and data, see `make_spec`."""
    model = recipe.model
    if needs_weights(spec) and model.weights == "none":
        model = model.model_copy(update={"weights": "file"})
    lender = spec
    while lender.bases:  # a re-ranked run has the rates of its first base
        lender = next(one for one in chain if one.id == lender.bases[0])
    bases = tuple(made[base] for base in spec.bases)
    known = {name: value for name, value in recipe.params_of(spec.method.name).items()}
    params = {name: _like(known[name], value) if name in known else value for name, value in spec.method.params.items()}
    if odd := sorted(known.keys() - params.keys()):
        raise UserError(f"the recipe sets methods.{spec.method.name}.{odd[0]}, which {spec.label} does not have")
    data = {"name": recipe.dataset, "distance": recipe.distance, "jpeg_quality": recipe.data.jpeg_quality}
    return Spec(
        protocol=recipe.protocol,
        dataset=spec.dataset.model_copy(update=data),
        method=spec.method.model_copy(update={"params": params}),
        type=spec.type,
        model=model,
        train=TrainSpec(**recipe.train.model_dump(exclude={"lr"}), lr=recipe.rates_of(lender.method.name, spec.type)),
        augment=recipe.augment if model.crops else recipe.augment.normalisation(),
        evaluation=recipe.evaluation,
        weights=spec.weights,
        seed=spec.seed,
        base=(bases[0] if len(bases) == 1 else bases) if bases else None,
    )


def _like(given: Any, recorded: Any) -> Any:
    """Return a hyperparameter as a recipe gives it, in the record's type: a class reads 1 as 1.0, a list as a tuple."""
    if isinstance(recorded, float) and type(given) is int:
        return float(given)
    return list(given) if isinstance(given, tuple) else given
