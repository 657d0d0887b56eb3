"""The settings of a run by the keys of recipes, compared with the recipes of the protocols."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hierbench.config.pretrained import KNOWN_WEIGHTS
from hierbench.config.rates import Rates
from hierbench.config.recipe import Recipe, load_recipe, recipe_names, shipped_recipe
from hierbench.config.sections import Protocol
from hierbench.config.spec import Spec
from hierbench.runs.record import Record
from hierbench.runs.records import Records

NO_VALUE = object()
DEFAULTS = {"methods.haframe.s_min": "paper", "methods.hafeature.dissimilarity_levels": "all"}
SECTIONS = ("model", "train", "augment", "evaluation")
OF_RECIPE = "not as in the recipe: "  # begins a remark that cannot be made again without a user's file


def find_recipe(dataset: str, protocol: str) -> Recipe | None:
    """Return the recipe of a dataset under a protocol, or None."""
    named_protocol: Protocol = "authors" if protocol == "authors" else "paper"
    if dataset in recipe_names():
        return shipped_recipe(dataset, protocol=named_protocol)
    return load_recipe(dataset, protocol=named_protocol) if Path(dataset).is_file() else None


def recorded_value(spec: Spec, key: str) -> Any:
    """Return a recipe key's value in a run's spec, NO_VALUE where the run has no such key."""
    return _value_in_spec(spec, spec.model_dump(mode="json", by_alias=True), key)


def _value_in_spec(spec: Spec, content: dict[str, Any], key: str) -> Any:
    first, *rest = key.split(".")
    if key == "distance" or key == "data.jpeg_quality":
        return content["dataset"][key.removeprefix("data.")]
    if first == "methods":
        return content["method"]["params"].get(rest[1], NO_VALUE) if rest[0] == spec.method.name else NO_VALUE
    if key.startswith("train.lr."):
        return content["train"]["lr"][rest[2]] if rest[1] == spec.type else NO_VALUE
    return _walk(content, key)


def published_value(dataset: str, key: str) -> Any:
    """Return a key's value in the published pipeline."""
    recipe = shipped_recipe(dataset, protocol="authors")
    value = _walk(recipe.model_dump(mode="json", by_alias=True), key)
    return DEFAULTS[key] if value is NO_VALUE else value


def _walk(content: Any, key: str) -> Any:
    for part in key.split("."):
        content = content.get(part, NO_VALUE) if isinstance(content, dict) else NO_VALUE
    return content


def differing_settings(spec: Spec, dataset: str = "", *, with_rates: bool = True) -> list[str]:
    """Return "key = value" for every setting of a run that differs from the recipe of its protocol.

    Hyperparameters do not count, and learning rates only `with_rates`. `dataset` is how the user gave it: the file of
    a dataset, or a name, by default the spec's.
    """
    recipe = find_recipe(dataset or spec.dataset.name, spec.protocol)
    if recipe is None:
        return []
    content = recipe.model_dump(mode="json", by_alias=True)
    keys = ["distance", "data.jpeg_quality"]
    keys += [f"{section}.{name}" for section in SECTIONS for name in content[section] if name != "lr"]
    if content["train"]["precision"] == "auto":  # any is right, and the table says which
        keys.remove("train.precision")
    normalisation = {"augment.mean", "augment.std"}
    if not spec.model.crops:  # the others do not apply
        keys = [key for key in keys if not key.startswith("augment.") or key in normalisation]
    left_to_library = normalisation | {"model.input_size"}
    keys = [key for key in keys if key not in left_to_library or _walk(content, key) is not None]
    full_content = spec.model_dump(mode="json", by_alias=True)  # with the keys that its record leaves out
    values = {key: (_value_in_spec(spec, full_content, key), _walk(content, key)) for key in keys}
    odd = [f"{key} = {value}" for key, (value, right) in values.items() if value != right]
    # Re-ranked runs have the rates of their first base, and do not know its name.
    methods = [spec.method.name, *(recipe.methods if spec.base is not None else ())]
    rates = [recipe.rates_for(method, spec.type) for method in methods]
    if with_rates and spec.train.lr not in rates:
        rates_of_run = spec.train.lr
        right = rates[0]
        shared = [name for name in Rates.model_fields if rates_of_run.of(name) != right.of(name)]
        odd += [f"train.lr.{spec.type}.{name} = {rates_of_run.of(name)}" for name in shared]
        groups = dict.fromkeys(name for group in (rates_of_run, right) for name in group.model_extra or {})
        changed = [name for name in groups if rates_of_run.of(name) != right.of(name)]
        odd += [f"methods.{spec.method.name}.lr.{name} = {rates_of_run.of(name)}" for name in changed]
    published = KNOWN_WEIGHTS.get(spec.model.weights)
    if published is not None and spec.weights is not None and not spec.weights.startswith(published.sha256):
        odd.append(f"the weights are not the published file of {spec.model.weights}")
    return odd


def remarks_on(
    dataset: str, newest: Spec, records: Sequence[Record], recipe: Recipe | None, all_records: Records
) -> list[str]:
    """Return the settings that the runs of a table share, and their departures from the recipe.

    `all_records` are all runs of their folder, which say how these were tuned.
    """
    train = newest.train
    views = f" frozen, views {newest.model.views}" if newest.model.frozen else ""
    if newest.model.given_features:
        views = f", views {newest.model.views}" * (newest.model.views > 1)
    # A record says "default" for any file that was given in place of the library's: its digest tells them apart.
    weights = f", weights {newest.model.weights} (SHA-256 {newest.weights[:8]})" if newest.weights else ""
    remarks = [f"{newest.model.backbone}{views}{weights}, {train.length}, batch {train.batch_size}, {train.precision}"]
    rates = {(record.job.type, record.job.train.lr) for record in records}
    mixed = {kind for kind, count in Counter(kind for kind, _ in rates).items() if count > 1}
    # One spec of each kind: the others differ in seeds, hyperparameters and code, which are no departures.
    specs = [record.job for record in records]
    kinds = {(spec.type, spec.method.name, spec.train.lr, spec.base is None): spec for spec in specs}.values()
    odd = dict.fromkeys(
        line for spec in kinds for line in differing_settings(spec, dataset, with_rates=spec.type not in mixed)
    )
    if odd:
        remarks.append(f"{OF_RECIPE}{', '.join(odd)}")
    if mixed:
        tuned = all(all_records.tuning_budget(record) for record in records if record.job.type in mixed)
        remarks.append("learning rates tuned per method" if tuned else "learning rates differ between methods")
    if recipe is not None and recipe.remark:
        remarks.append(recipe.remark)
    return remarks
