"""The request behind a row: planning it gives the recorded ids, and why it does not is said."""

import json
import re
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from hierbench.config.options import Options, RunSelection
from hierbench.config.overrides import apply_override, format_override
from hierbench.config.recipe import load_recipe
from hierbench.config.spec import Spec
from hierbench.execution.jobs import find_methods, make_jobs
from hierbench.models.libraries.lookup import resolve_model
from hierbench.runs.records import Records
from hierbench.runs.requests import Request, command_words, request_options
from hierbench.runs.run_archive import opened
from hierbench.studies.reproduction import find_rows, recorded_options, split_name
from hierbench.utils.errors import UserError
from tests.support.publications import loose

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "leaderboard/published"
PUBLISHED = TABLES / "grocery-finetuned"


@pytest.mark.parametrize("table", ["cifar100-small", "grocery-finetuned", "leaves", "eth80-lite2"])
def test_the_requests_of_published_tables_plan_all_their_rows(table):
    """Those of all tables plan the published ids, see tests/golden/test_ids.py."""
    methods = json.loads((TABLES / f"{table}.json").read_text())["rows"]
    for method in sorted({row["method"] for row in methods}):
        for row in find_rows(RunSelection(TABLES / table), method, None):
            assert row.options is not None, row.notes
            words = command_words(vars(row.options))
            assert shlex.split(shlex.join(words)) == words and words[:3] == ["hierbench", "run", "--methods"]


CHANGES = [
    ("ce", "type-I", []),
    ("crm", "type-II", ["methods.ce.lr.classifier=0.5", "train.epochs=2"]),
    ("hie", "type-I", ["train.lr.type-I.backbone=1e-05", "methods._coarse_ce.lr.transform=0.25"]),
    ("haframe", "type-II", ["methods.haframe.alpha=0.25", "methods.haframe.s_min=exact", "distance=depth"]),
    ("haframe", "type-II", ["methods.haframe.gamma=5"]),
    ("hafeature", "type-I", ["methods.hafeature.dissimilarity_levels=[1, 2]", "train.batch_size=7"]),
    ("soft_labels", "type-I", ["train.optimizer=adamw", "train.warmup_epochs=1", "train.sampling=balanced"]),
    ("etf", "type-II", ["train.layer_decay=0.5", "model.backbone=wrn16-2", "model.wrn_group_input=raw"]),
    ("ce", "type-I", ["augment.crop=random-resized", "augment.pad=0", "augment.pad_mode=zero", "augment.flip=false"]),
    ("ce", "type-I", ["augment.mean=[0.1, 0.2, 0.3]", "model.type_i_units=12", "evaluation.ddof=0"]),
    ("ce", "type-I", ["model.frozen=true", "model.weights=random", "model.views=3"]),
    ("ce", "type-II", ["model.frozen=true", "model.weights=random", "augment.flip=false"]),
    ("barz_denzler", "type-I", ["methods.barz_denzler.lr.transform=0.125", "train.precision=bfloat16"]),
]  # fmt: skip


def specs_of(shapes, method, kind, overrides=(), protocol="paper", tuned=None):
    """The specs of a plan by id: a row and its bases."""
    recipe = resolve_model(load_recipe("shapes", list(overrides), protocol))
    methods, _ = find_methods([method])
    return {job.id: job.spec for job in make_jobs(recipe, shapes, methods, [kind], 2, tuned=tuned)}


def request_of(overrides=(), protocol="paper", methods="all", **more):
    """The request of a comparison of more methods and types than a row has."""
    options = Options("shapes", methods, overrides=list(overrides), protocol=protocol)
    return Request(request="0" * 16, kind="comparison", dataset="shapes", options=request_options(options, 5, **more))


def options_of(request, specs, method):
    """The options that a request gives for a row of a method and its bases."""
    row = dict(sorted(specs.items(), key=lambda item: item[1].method.name != method))
    runs = [SimpleNamespace(id=run_id) for run_id, spec in row.items() if spec.method.name == method]
    records = Records(Path(), requests=(request.model_copy(update={"ids": tuple(row)}),))
    return recorded_options(records, runs, row, "shapes", {})


@pytest.mark.parametrize("protocol", ["paper", "authors"])
@pytest.mark.parametrize(("method", "kind", "overrides"), CHANGES, ids=lambda value: str(value)[:40])
def test_a_request_plans_the_ids_of_a_row(shapes, method, kind, overrides, protocol):
    """Other parts of the command are dropped."""
    specs = specs_of(shapes, method, kind, overrides, protocol)
    others = ["methods.descendant_softmax.lr.transform=0.5", *overrides]
    options = options_of(request_of(others, protocol), specs, method)
    assert (options.methods, options.types, options.seeds) == (method, kind, 2)
    assert list(options.overrides)[: len(overrides)] == overrides


def test_recorded_tuned_values_are_set(shapes):
    tuned = {("ce", "type-II"): {"lr.classifier": 0.25}, ("haframe", "type-II"): {"alpha": 0.2}}
    recorded = {f"{name}:{kind}": params for (name, kind), params in tuned.items()}
    specs = specs_of(shapes, "crm", "type-II", tuned=tuned)
    options = options_of(request_of(tuned=recorded), specs, "crm")
    assert options.overrides[0] == "methods.ce.lr.classifier=0.25" and "alpha" not in str(options.overrides)


def test_differing_settings_of_an_unplanned_run_are_named(shapes):
    specs = specs_of(shapes, "ce", "type-I")
    spec = next(iter(specs.values()))
    other = changed(spec, method__code="0" * 64)
    for request, recorded, problem in (
        (
            request_of(["train.epochs=3"]),
            specs,
            "another run in place of ce type-I seed 0: train.epochs was 10",
        ),
        (request_of(), {other.id: other}, "method.code was 000"),
        (request_of(), {spec.id: spec, "another": changed(spec, seed=1, train__epochs=3)}, "train.epochs was 3"),
    ):
        with pytest.raises(UserError, match=problem):
            options_of(request, recorded, "ce")


def test_settings_survive_as_options():
    for value in ("a b", "true", "1", "x\u202ey", 'q"\\', "timm:a.b", [0.5, 1], {"a": "b"}, 1e-07, 3, 2.0, False, "é"):
        content = {}
        apply_override(content, text := format_override("methods.x.y", value))
        assert content == {"methods": {"x": {"y": value}}} and text.isprintable(), text
        assert type(content["methods"]["x"]["y"]) is type(value)


def changed(spec, **values):
    content = spec.content()
    for key, value in values.items():
        part = content
        *path, last = key.split("__")
        for name in path:
            part = part[name]
        part[last] = value
    return Spec.model_validate(content)


def test_names_of_rows():
    assert split_name("ce") == ("ce", None) and split_name("ce:type-I") == ("ce:type-I", None)
    assert split_name("ce:top1") == ("ce", "top1") and split_name("ce:type-II:hierdist@1") == (
        "ce:type-II",
        "hierdist@1",
    )


def test_the_command_of_a_published_cell(cli, tmp_path):
    done = cli(tmp_path, "reproduce", PUBLISHED.with_suffix(".md"), "crm:type-II:top1").ok()
    first, _, *block = done.out.splitlines()
    assert first.startswith(
        "hierbench run --methods crm --types type-II --seeds 5 --dataset grocery-finetuned --weights "
    )
    assert "methods.ce.lr.classifier=0.012732945242475176" in first
    text = "\n".join(block)
    assert re.search(r"top1 +68.2012 \+/- 2.7432\n", text) and re.search(r"seeds +0, 1, 2, 3, 4\n", text)
    spec = json.loads(next(opened(PUBLISHED).glob("*/spec.json")).read_text())
    assert spec["dataset"]["digest"] in text and spec["weights"] in text and re.search(r"torch +2\.", text)
    both = json.loads(cli(tmp_path, "reproduce", PUBLISHED, "ce", "--json").ok().out)
    assert [row["type"] for row in both["rows"]] == ["type-I", "type-II"]
    assert len(both["rows"][0]["metrics"]) == 5 and both["rows"][0]["seeds"] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (None, "no recorded request"),
        ({"overrides": 3}, "no command: "),
        ({"overrides": ["a.b=1"]}, "no command: "),
        ({"overrides": ["train.epochs=31"]}, "train.epochs was 15 and is 31 here"),
        ({"tuned": {"ce:type-I": [1]}}, "no command: "),
        ({"tuned": {}}, "train.lr.transform was "),
    ],
)
def test_a_row_whose_request_does_not_plan_it_shows_its_spec(cli, tmp_path, options, part):
    """A received request may have any content."""
    folder = loose(Path(shutil.copytree(TABLES / "cifar100-small", tmp_path / "cifar100-small")))
    lines = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()][-1:]
    request = Request.model_validate(lines[0] | {"options": lines[0]["options"] | (options or {})})
    line = lines[0] | {"options": request.options, "request": request.digest}
    (folder / "requests.jsonl").write_text("" if options is None else json.dumps(line) + "\n")
    done = cli(tmp_path, "reproduce", folder, "ce:type-I").ok()
    spec = Spec.model_validate(json.loads(done.out.splitlines()[0]))
    assert (folder / spec.id).is_dir() and part in done.out
    cli(tmp_path, "reproduce", folder, "ce:type-I", "--run").one_line("ce:type-I: no command")
