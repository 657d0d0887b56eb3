"""The paper's four datasets from archives in their official layouts to a leaderboard, under both protocols."""

import json
import re
import subprocess
import tarfile
import urllib.request
from dataclasses import replace

import pytest

from hierbench.data.datasets import inat19, tieredimagenet_h
from hierbench.data.datasets.split_lists import read_lists
from hierbench.data.prepared import find

DATASETS = ("fgvc", "cifar100", "inat19", "tieredimagenet-h")
QUICK = {
    "fgvc": "authors",
    "cifar100": "paper",
}  # of every run of the suite; the others with --thorough
SMALL = ("model.backbone=wrn10-1-s4", "model.weights=none", "train.epochs=1", "train.batch_size=32")
SHORT = ["--seeds", "1", "--jobs", "1", "--mlflow", "off", *(part for key in SMALL for part in ("--set", key))]


def archived(folder, name):
    with tarfile.open(folder / f"{name}.tar.gz", "w:gz") as tar:
        tar.add(folder / name, name)
    return folder / f"{name}.tar.gz"


@pytest.fixture(scope="module")
def prepared(cli, tmp_path_factory, shared, miniatures):
    """A folder with all four prepared by the command line; {dataset: output}."""
    folder, lists = tmp_path_factory.mktemp("paper"), shared / "data/making-better-mistakes"
    aircraft = miniatures.aircraft_of(shared / "facts/fgvc-aircraft.csv")
    miniatures.fgvc(folder, per_class=1, aircraft=aircraft)
    miniatures.cifar100(folder, train_per_class=2)
    offline = folder / "offline"
    offline.mkdir()
    (offline / inat19.INAT19_TREE.name).symlink_to(lists / inat19.INAT19_TREE.name)
    names = (lists / inat19.INAT19_TREE.name).read_text().split()
    classes = sorted({name for name in names if name.startswith("nat")})
    class_of = miniatures.inat19_lists(
        offline / inat19.INAT19_SPLITS.name, classes, {"train": 64, "val": 16, "test": 300}
    )
    small = subprocess.run(["git", "hash-object", offline / inat19.INAT19_SPLITS.name], capture_output=True, text=True)
    tiered = read_lists(tieredimagenet_h.TIERED_TREE, tieredimagenet_h.TIERED_SPLITS, folder, lists)
    images = [*tiered.names["train"][::6000], *tiered.names["val"][::1000], *tiered.names["test"][::500]]
    sources = {
        "fgvc": [archived(folder, "fgvc-aircraft-2013b")],
        "cifar100": [archived(folder, "cifar-100-python")],
        "inat19": [miniatures.inat19_archive(folder / "train_val2019.tar.gz", class_of), "--offline", offline],
        "tieredimagenet-h": [miniatures.ilsvrc(folder / "ILSVRC2012", images), "--offline", lists, "--allow-missing"],
    }
    printed = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inat19, "INAT19_SPLITS", replace(inat19.INAT19_SPLITS, blob=small.stdout.strip()))
        for name, arguments in sources.items():
            _, out, err = cli(folder, "data", "prepare", name, "--source", *arguments).ok()
            printed[name] = out, err
        source = sources["fgvc"][0]
        cli(folder, "data", "prepare", "fgvc", "--protocol", "authors", "--source", source).ok()
    return folder, printed


def test_classes_height_and_levels_are_table_1_s(cli, prepared):
    folder, printed = prepared
    expected = {
        "fgvc": "100 classes, height 3, levels 30, 70, 100",
        "cifar100": "100 classes, height 5, levels 2, 4, 8, 20, 100",
        "inat19": "1010 classes, height 7, levels 3, 4, 9, 34, 57, 72, 1010",
        "tieredimagenet-h": "608 classes, height 12, levels 2, 5, 21, 35, 86, 159, 270, 422, 510, 584, 607, 608",
    }
    for name, text in expected.items():
        out, err = printed[name]
        assert text in out
        assert "note: not the whole dataset: train " in err
        assert "height" not in err and "level sizes" not in err  # only the split sizes differ
        assert find(name, folder / "data").hierarchy("height").classes == tuple(
            sorted(find(name, folder / "data").hierarchy("height").classes)
        )
    for name in ("inat19", "tieredimagenet-h"):
        assert "CC BY-NC-SA 4.0" in printed[name][1]
    code, out, _ = cli(folder, "data", "list")
    assert code == 0 and "fgvc-jpeg75" in out and len(re.findall(r" prepared +\d", out)) == 5


@pytest.mark.parametrize(
    ("name", "protocol"),
    [
        pytest.param(name, protocol, marks=[] if QUICK.get(name) == protocol else pytest.mark.thorough)
        for name in DATASETS
        for protocol in ("paper", "authors")
    ],
)
def test_a_shrunk_recipe_runs(cli, prepared, name, protocol):
    """With all nine rows; those of three methods for the large images."""
    folder, _ = prepared
    methods, rows = ("paper", 9) if name == "cifar100" else ("ce,crm,haframe", 5)
    arguments = ("run", "--methods", methods, "--dataset", name, "--protocol", protocol, *SHORT, "--json")
    _, out, _ = cli(folder, *arguments).ok()
    board = json.loads(out)
    assert board["protocol"] == protocol and len(board["rows"]) == rows
    assert board["distance"] == ("depth" if name == "tieredimagenet-h" else "height")
    for row in board["rows"]:
        (run,) = row["runs"]
        spec = json.loads((folder / "runs" / run / "spec.json").read_text())
        metrics = json.loads((folder / "runs" / run / "metrics.json").read_text())
        assert spec["protocol"] == protocol
        assert spec["evaluation"] == {
            "drop_last": protocol == "authors",
            "drop_order": "file" if (name, protocol) == ("cifar100", "authors") else "class",
            "ddof": 0 if protocol == "authors" else 1,
        }
        sizes = find("fgvc-jpeg75" if (name, protocol) == ("fgvc", "authors") else name, folder / "data").meta["splits"]
        kept = 256 if protocol == "authors" and sizes["test"] > 256 else sizes["test"]
        mistakes = round(kept * (100 - metrics["test"]["top1"]) / 100)
        assert sum(metrics["mistakes_by_distance"]) == mistakes


def test_the_table_never_mixes_protocols(cli, prepared):
    folder, _ = prepared
    for protocol in ("paper", "authors"):
        cli(folder, "run", "--methods", "ce", "--dataset", "fgvc", "--protocol", protocol, *SHORT).ok()
    code, out, _ = cli(folder, "leaderboard", "--dataset", "fgvc")
    other = "there are runs under protocol paper, in a table of their own"
    assert code == 0 and "protocol authors" in out and other in out
    code, out, _ = cli(folder, "leaderboard", "--dataset", "fgvc", "--protocol", "paper")
    assert code == 0 and "fgvc, protocol paper" in out
    code, _, err = cli(folder, "leaderboard", "--dataset", "inat19", "--protocol", "paper", "--runs", "nowhere")
    assert code == 2 and "no runs of inat19 under protocol paper" in err


def test_the_ledger(cli, prepared):
    """Of all rows on CIFAR-100, whose runs are those of the recipe's test."""
    folder, _ = prepared
    of_paper = ("--dataset", "cifar100", "--protocol", "paper")
    cli(folder, "run", "--methods", "paper", *of_paper, *SHORT).ok()
    _, out, _ = cli(folder, "leaderboard", *of_paper, "--numbers", "both").ok()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in out.splitlines() if line.startswith("|")][2:]
    assert len(lines) == 45 and {len(line) for line in lines} == {9}  # nine rows, five metrics
    for line in lines:
        published, ours = (float(cell.split()[0]) for cell in line[3:5])
        assert float(line[5]) == pytest.approx(ours - published, abs=0.011)
        assert line[6] == "-"  # one seed has no interval
        assert {"4", "5"} <= {*line[-1].split(", ")}


def test_without_weights_the_error_names_the_way_out(cli, prepared, monkeypatch):
    def no_network(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    folder, _ = prepared
    code, out, err = cli(folder, "run", "--methods", "ce", "--dataset", "fgvc")
    before, error = err.strip().splitlines()
    assert (code, out) == (2, "") and before.startswith("downloading the ImageNet-1K weights from https://")
    assert "--set model.weights=none" in error and "--weights FILE" in error
