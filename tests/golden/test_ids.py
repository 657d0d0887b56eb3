"""The ids of published runs: the documented commands plan exactly these."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from hierbench.config.recipe import load_recipe
from hierbench.config.spec import Spec
from hierbench.config.tuned_values import read_tuned
from hierbench.execution.jobs import find_methods, make_jobs
from hierbench.models.libraries.lookup import resolve_model

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "leaderboard/published"


def published_specs(table):
    """The specs of a published table by id, which is the name of their folder."""
    paths = (PUBLISHED / table).glob("*/spec.json")
    specs = {path.parent.name: Spec.model_validate(json.loads(path.read_text(encoding="utf-8"))) for path in paths}
    assert all(spec.id == run_id for run_id, spec in specs.items())
    return specs


def data_of(spec):
    """The digests that planning needs of data, here the recorded ones."""
    tree = SimpleNamespace(digest=lambda: spec.dataset.hierarchy)
    return SimpleNamespace(digest=spec.dataset.digest, hierarchy=lambda distance: tree)


@pytest.mark.parametrize("table", sorted(path.stem for path in PUBLISHED.glob("*.csv")))
def test_the_documented_commands_plan_the_published_ids(table):
    """Those of the page on photographs with `run --dataset NAME --tuned`, on the data and weights of the records.

    With `--set methods.` they are those of the rows that were set by hand, which are published by themselves.
    """
    specs = {}
    for folder in (".", "variants", "selection"):
        specs |= published_specs(f"{folder}/{table}")
    page = (ROOT / "docs/photographs.md").read_text(encoding="utf-8")
    recipe, first = resolve_model(load_recipe(table)), next(iter(specs.values()))
    if recipe.model.frozen:
        recipe = recipe.model_copy(update={"augment": recipe.augment.normalisation()})
    entries = read_tuned(ROOT / f"benchmarks/tuned/{table}.toml")
    tuned = {(method, feature_type): entry.params for (_, method, feature_type), entry in entries.items()}
    planned = set()
    trained = {spec.method.name for spec in specs.values()}  # a method that is newer than the table has no row in it
    words = " .*--tuned.*" if entries else ".*"
    page = page.replace("\\\n", "")
    for line in re.findall(rf"^hierbench run .*--dataset {table}{words}$", page, re.M):
        words = dict(re.findall(r"--(methods|types|seeds) (\S+)", line))
        changes = re.findall(r"--set (methods\.\S+)", line)
        set_by_hand = {change.split("=")[0].split(".", 2)[2] for change in changes}
        shown = {key: {n: v for n, v in entry.items() if n not in set_by_hand} for key, entry in tuned.items()}
        methods, _ = find_methods(words["methods"].split(","))
        types, seeds = words.get("types", "type-I,type-II").split(","), int(words.get("seeds", recipe.seeds))
        changed = load_recipe(table, changes).methods if changes else recipe.methods
        changed_recipe = recipe.model_copy(update={"methods": changed})
        plan = make_jobs(changed_recipe, data_of(first), methods, types, seeds, first.weights, shown)
        planned |= {job.id for job in plan if job.spec.method.name in trained}
    assert planned == specs.keys()
