"""The ids of published runs: what their records say was asked for plans exactly these."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from hierbench.config.recipe import load_recipe
from hierbench.config.spec import Spec
from hierbench.execution.jobs import find_methods, make_jobs
from hierbench.models.libraries.lookup import resolve_model
from hierbench.runs.run_archive import opened

ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted(path.parent for path in (ROOT / "leaderboard/published").glob("*/runs.zip"))


def data_of(spec):
    """The digests that planning needs of data, here the recorded ones."""
    tree = SimpleNamespace(digest=lambda: spec.dataset.hierarchy)
    return SimpleNamespace(digest=spec.dataset.digest, hierarchy=lambda distance: tree, has_labels_above=False)


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.name)
def test_the_recorded_requests_plan_the_published_ids(table):
    """On the data and weights of the records; a request's methods, types, seeds, changes and tuned values decide."""
    records = opened(table)
    specs = [Spec.model_validate(json.loads(path.read_text(encoding="utf-8"))) for path in records.glob("*/spec.json")]
    first, planned = specs[0], set()
    for line in (records / "requests.jsonl").read_text(encoding="utf-8").splitlines():
        request = json.loads(line)
        options = request["options"]
        recipe = resolve_model(load_recipe(request["dataset"], options["overrides"]))
        if recipe.model.frozen:
            recipe = recipe.model_copy(update={"augment": recipe.augment.normalisation()})
        methods, _ = find_methods(options["methods"].split(","))
        tuned = {tuple(row.split(":")): values for row, values in options.get("tuned", {}).items()}
        types = options["types"].split(",")
        jobs = make_jobs(recipe, data_of(first), methods, types, options["seeds"], first.weights, tuned)
        assert {job.id for job in jobs} == set(request["ids"])
        planned |= set(request["ids"])
    assert planned == {spec.id for spec in specs}
