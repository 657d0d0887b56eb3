"""The command behind a row: planning it gives the recorded ids, and what cannot be had is said."""

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hierbench.api.registry import find_method
from hierbench.config.overrides import apply_override, override_of
from hierbench.config.recipe import load_recipe
from hierbench.config.spec import Spec
from hierbench.models.libraries.lookup import resolve_model
from hierbench.planning.plan import find_methods, make_plan, names_asked
from hierbench.reproduction import command_of
from hierbench.reproduction.command import options_of
from hierbench.reproduction.rows import split_name
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "leaderboard/published/tiny-imagenet-frozen"


def planned(shapes, method, kind, overrides=(), protocol="paper", seeds=2, weights=None, dataset="shapes"):
    """The specs of a plan, of the row and of what it re-ranks."""
    recipe = resolve_model(load_recipe(dataset, list(overrides), protocol))
    methods, _ = find_methods([method])
    return [job.spec for job in make_plan(recipe, shapes, methods, [kind], seeds, weights)]


def planned_again(shapes, words):
    """The ids that the words of a command give."""
    options = options_of(words)
    recipe = resolve_model(load_recipe(options.dataset, options.overrides, options.protocol))
    methods, _ = find_methods(names_asked(options))
    return {job.id for job in make_plan(recipe, shapes, methods, [options.types], options.seeds)}


def test_no_row_of_the_published_table_needs_more_than_options():
    specs = {run.folder.name: Spec.model_validate(run.spec()) for run in Store(PUBLISHED).runs()}
    rows = {}
    for spec in specs.values():
        rows.setdefault((spec.method.name, spec.type), []).append(spec)
    assert len(rows) == 19  # 18 of the table, and the coarse network of HiE

    def whole(spec):
        return [spec, *(one for base in spec.bases for one in whole(specs[base]))]

    planned = set()
    for of_row in rows.values():
        words = command_of([one for spec in of_row for one in whole(spec)], "tiny-imagenet-frozen")
        options = options_of(words)
        # mean and std are given as recorded, so that nothing is asked of the backbone's library.
        recipe = load_recipe(options.dataset, options.overrides, options.protocol)
        recipe = recipe.model_copy(update={"augment": recipe.augment.normalisation()})
        method, first = find_method(options.methods), of_row[0]
        planned |= {job.id for job in make_plan(recipe, data_of(first), [method], [options.types], 5, first.weights)}
    assert planned == specs.keys()


def data_of(spec):
    """What planning takes of data: digests, here the recorded ones."""
    tree = SimpleNamespace(digest=lambda: spec.dataset.hierarchy)
    return SimpleNamespace(digest=spec.dataset.digest, hierarchy=lambda distance: tree)


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
    ("ce", "type-I", ["model.frozen=true", "model.views=3"]),
    ("ce", "type-II", ["model.frozen=true", "augment.flip=false"]),
    ("barz_denzler", "type-I", ["methods.barz_denzler.lr.transform=0.125", "train.precision=bfloat16"]),
]  # fmt: skip


@pytest.mark.parametrize("protocol", ["paper", "authors"])
@pytest.mark.parametrize(("method", "kind", "overrides"), CHANGES, ids=lambda value: str(value)[:40])
def test_the_command_gives_the_ids(shapes, method, kind, overrides, protocol):
    specs = planned(shapes, method, kind, overrides, protocol)
    words = command_of(specs, "shapes")
    assert planned_again(shapes, words) == {spec.id for spec in specs}
    assert shlex.split(shlex.join(words)) == words and words[:2] == ["hierbench", "run"]
    for override in overrides:  # nothing that is as in the recipe is given
        key = override.partition("=")[0]
        assert key.startswith("train.lr.") or not key.startswith("train") or any(key in word for word in words)


def test_a_method_s_own_rates_take_the_place_of_those_of_the_type(shapes):
    words = command_of(planned(shapes, "ce", "type-I", ["train.lr.type-I.classifier=0.5"]), "shapes")
    assert words[words.index("--set") + 1 :] == ["methods.ce.lr.classifier=0.5"]


def test_some_seeds_and_one_run(shapes):
    specs = planned(shapes, "crm", "type-I", seeds=4)
    third = [spec for spec in specs if spec.seed == 2]
    words = command_of(third, "shapes")
    assert words[words.index("--seeds") + 1] == "3" and {spec.id for spec in third} <= planned_again(shapes, words)


def test_settings_survive_as_options():
    for value in ("a b", "true", "1", "x\u202ey", 'q"\\', "timm:a.b", [0.5, 1], {"a": "b"}, 1e-07, 3, 2.0, False, "é"):
        content = {}
        apply_override(content, text := override_of("methods.x.y", value))
        assert content == {"methods": {"x": {"y": value}}} and text.isprintable(), text
        assert type(content["methods"]["x"]["y"]) is type(value)
    for key, value in (("methods.x.y", None), ("methods.a b.y", 1), ("methods.x=1.y", 1), ("methods..y", 1)):
        with pytest.raises(UserError, match="cannot be given"):
            override_of(key, value)


def changed(spec, **values):
    content = spec.content()
    for key, value in values.items():
        part = content
        *path, last = key.split("__")
        for name in path:
            part = part[name]
        part[last] = value
    return Spec.model_validate(content)


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"method__code": "0" * 64}, "ce ran with code 000000000000, and the installed file has"),
        ({"method__name": "mine"}, "mine is not installed"),
        ({"method__name": "../ce"}, "is not the name of a method"),
        ({"code": 1}, "version 1 of the engine"),
        ({"split": "val"}, "hierbench tune"),
        ({"dataset__name": "birds"}, "of birds, not of shapes"),
        ({"dataset__name": "cifar100"}, "of cifar100, not of shapes"),
        ({"augment__pad": 0, "augment__pad_mode": "reflect", "model__frozen": True}, "no options give the settings"),
    ],
)
def test_what_no_command_gives(shapes, values, part):
    spec = changed(planned(shapes, "ce", "type-I", seeds=1)[0], **values)
    with pytest.raises(UserError, match=part):
        command_of([spec], "shapes")


def test_several_rows_and_missing_bases(shapes):
    specs = planned(shapes, "crm", "type-I", seeds=1)
    with pytest.raises(UserError, match="whose record is not here"):
        command_of([spec for spec in specs if spec.bases], "shapes")
    with pytest.raises(UserError, match=r"2 rows \(ce:type-I, ce:type-II\)"):
        command_of([*planned(shapes, "ce", "type-I"), *planned(shapes, "ce", "type-II")], "shapes")
    with pytest.raises(UserError, match="no runs"):
        command_of([], "shapes")
    user = changed(specs[0], dataset__name="birds")
    with pytest.raises(UserError, match=r"give its file, --dataset ./birds.toml"):
        command_of([user], "birds")


def test_files_of_methods_and_weights_are_named(shapes):
    spec = changed(
        planned(shapes, "ce", "type-I", seeds=1)[0], method__name="mine", model__weights="file", weights="ab" * 32
    )
    words = command_of([spec], "shapes", {"mine": "./mine.py"})
    assert words[2:4] == ["--methods", "./mine.py"]
    assert words[words.index("--weights") + 1] == "weights-abababababab"


def test_the_file_of_a_user_s_dataset_is_its_recipe(shapes, tmp_path):
    text = (ROOT / "benchmarks/shapes.toml").read_text().replace('"shapes"', '"birds"', 1)
    file = tmp_path / "my birds.toml"
    file.write_text(text + '\n[source]\nimages = "images"\ntree = "shapes"\nsplits = {val = 0.1, test = 0.1}\n')
    specs = [
        changed(spec, dataset__name="birds")
        for spec in planned(shapes, "haframe", "type-II", ["methods.haframe.alpha=0.5"], protocol="authors")
    ]
    words = command_of(specs, str(file))
    assert words[words.index("--dataset") + 1] == str(file) and words[-2:] == ["--set", "methods.haframe.alpha=0.5"]
    assert shlex.split(shlex.join(words)) == words
    with pytest.raises(UserError, match="of shapes, not of birds"):
        command_of(planned(shapes, "ce", "type-I"), str(file))


def test_no_pytorch_is_imported():
    code = (
        "import sys; from hierbench.reproduction import command_of; from hierbench.config.spec import Spec;"
        f"import json; spec = Spec.model_validate(json.load(open({str(next(PUBLISHED.glob('*/spec.json')))!r})));"
        "\ntry: command_of([spec], 'tiny-imagenet-frozen')\nexcept ValueError as error: assert 're-ranks' in str(error)"
        "\nassert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
        "hierbench run --methods crm --types type-II --dataset tiny-imagenet-frozen --seeds 5 --set"
    )
    assert "methods.ce.lr.classifier=0.028889476436946324" in first
    text = "\n".join(block)
    assert "value    top1 61.14 +/- 0.2405" in text and "seeds    0, 1, 2, 3, 4" in text
    spec = json.loads(next(PUBLISHED.glob("*/spec.json")).read_text())
    assert spec["dataset"]["digest"] in text and spec["weights"] in text and "torch 2." in text
    both = json.loads(cli(tmp_path, "reproduce", PUBLISHED, "ce", "--json").ok().out)
    assert [row["type"] for row in both["rows"]] == ["type-I", "type-II"]
    assert len(both["rows"][0]["metrics"]) == 5 and both["rows"][0]["seeds"] == [0, 1, 2, 3, 4]


def test_mistakes_are_one_line(cli, tmp_path):
    cli(tmp_path, "reproduce", PUBLISHED, "cee").one_line("did you mean 'ce:type-I'")
    cli(tmp_path, "reproduce", PUBLISHED, "ce:type-I:topp").one_line("unknown metric 'topp'")
    cli(tmp_path, "reproduce", PUBLISHED, "ce", "--dataset", "shapes").one_line("no runs of shapes")
    cli(tmp_path, "reproduce", tmp_path / "nowhere", "ce").one_line("no such folder")
    cli(tmp_path, "reproduce", tmp_path, "ce").one_line("no runs")
    copy = shutil.copytree(PUBLISHED, tmp_path / "copy")
    cli(tmp_path, "reproduce", copy, "ce:type-I", "--run", "--runs", copy).one_line("holds the records themselves")
