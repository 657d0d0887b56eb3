"""`--metrics`: columns that are computed from the predictions of finished runs, in every format and command."""

import csv
import io
import json
import re
import shutil

import numpy as np
import pytest
import torch

from hierbench import Hierarchy
from hierbench.hierarchy.readers import shipped_paths
from hierbench.leaderboard.statistics import PAPER_METRICS, summarise
from hierbench.metrics import Evidence, compute_metrics
from tests.support.short import SMALL

FAST = ["--seeds", "2", *SMALL]
RUN = ["run", "--dataset", "shapes", "--methods", "ce,crm,./heads.py", "--types", "type-II", *FAST]
HEADS = '''"""Cross-entropy with a head per level: level-wise predictions that need not agree."""
import torch
import torch.nn.functional as F
from torch import nn
from hierbench import Method

class Heads(Method):
    name, title, source = "heads", "level heads", "a test"

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.heads = nn.ModuleList(nn.Linear(num_features, size) for size in hierarchy.level_sizes)
    def forward(self, features):
        return [head(features) for head in self.heads]
    def loss(self, outputs, targets):
        nodes = torch.tensor(self.hierarchy.level_targets, device=targets.device)[targets]
        return {f"level_{i}": F.cross_entropy(output, nodes[:, i]) for i, output in enumerate(outputs)}
    def scores(self, outputs):
        return outputs[-1]
    def level_scores(self, outputs):
        return outputs
'''


@pytest.fixture(scope="module")
def folder(cli, tmp_path_factory, data_dir):
    """A folder with finished runs of three methods, one of them with level-wise predictions."""
    folder = tmp_path_factory.mktemp("metrics")
    shutil.copytree(data_dir, folder / "data")
    (folder / "heads.py").write_text(HEADS)
    cli(folder, *RUN).ok()
    return folder


@pytest.fixture(scope="module")
def tree():
    return Hierarchy.from_paths(shipped_paths("shapes"))


def leaderboard(cli, folder, *arguments):
    return cli(folder, "leaderboard", "--dataset", "shapes", *arguments)


def as_json(cli, folder, *arguments):
    content = json.loads(leaderboard(cli, folder, "--format", "json", *arguments).ok().out)
    return {row["method"]: row for row in content["rows"]}


def arrays(folder, run):
    with np.load(folder / "runs" / run / "predictions.npz") as content:
        return {name: torch.from_numpy(content[name]) for name in content}


def evidence(folder, tree, run, base_run=None):
    """The evidence of a run's metrics; `of` is the run whose confidence it has."""
    stored, base = arrays(folder, run), arrays(folder, base_run or run)
    probabilities = base["scores"].double().softmax(dim=1)
    return Evidence(stored["scores"], stored["targets"], tree, probabilities, stored.get("level_predictions"))


def test_values_are_those_of_the_stored_predictions(cli, folder, tree):
    """Of CRM the confidence is that of its base; the best of a column follows its direction."""
    names = ["hf_macro", "ece", "information_severity", "fpa", "tice", "haurc_climbing", "level_accuracy_lifted@2"]
    rows = as_json(cli, folder, "--metrics", ",".join(names))
    for method in ("ce", "crm", "heads"):
        bases = rows["ce"]["runs"] if method == "crm" else [None, None]
        values_by_run = [
            compute_metrics(names, evidence(folder, tree, run, base))
            for run, base in zip(rows[method]["runs"], bases, strict=True)
        ]
        cells = rows[method]["metrics"]
        assert list(cells) == [*PAPER_METRICS, *names]  # the contract's, then those asked for
        for name in names:
            if name in ("fpa", "tice") and method != "heads":
                assert cells[name] == {"mean": None, "ci95": None, "values": [None, None], "best": False}
                continue
            assert cells[name]["values"] == [values[name] for values in values_by_run]
            expected = summarise(cells[name]["values"])
            assert (cells[name]["mean"], cells[name]["ci95"]) == pytest.approx((expected.mean, expected.ci95))
    assert rows["crm"]["metrics"]["ece"] != rows["ce"]["metrics"]["ece"]
    for name, best, digits in (("hf_macro", max, 2), ("haurc_climbing", min, 4)):
        means = {
            method: round(row["metrics"][name]["mean"], digits) for method, row in rows.items() if row["competitive"]
        }
        marked = {method for method, row in rows.items() if row["metrics"][name]["best"]}
        assert marked and marked <= {method for method, mean in means.items() if mean == best(means.values())}


def test_columns_of_the_formats(cli, folder):
    options = ["--metrics", "level_accuracy@1,ece,haurc_climbing"]
    table = leaderboard(cli, folder, *options).ok().out
    heads = [cell.strip() for cell in table.splitlines()[0].strip("|").split("|")]
    assert heads == ["Model", "Method", "Level 1 accuracy ↑", "ECE ↓", "hAURC (climbing) ↓", "Runs"]
    assert "\nLevel 1 accuracy, ECE in %; hAURC (climbing) between 0 and 1.\n" in table
    row = next(csv.DictReader(io.StringIO(leaderboard(cli, folder, *options, "--format", "csv").ok().out)))
    assert {"ece", "ece ci95", "ece best", "competitive"} <= set(row) and "top1" not in row
    tex = leaderboard(cli, folder, *options, "--format", "latex").ok().out
    assert r"{llcccl}" in tex and r"Level 1 accuracy, ECE in \%;" in tex
    numbers = " +/- ".join(f"{float(row[name]):.4f}" for name in ("haurc_climbing", "haurc_climbing ci95"))
    assert numbers in table and numbers.replace("+/-", r"$\pm$") in tex


def test_names_with_a_plus_are_added_and_the_papers_columns_can_be_chosen(cli, folder):
    tables = [
        leaderboard(cli, folder, *words).ok().out
        for words in ((), ("--metrics", "+fpa,+hierdist@10"), ("--metrics", "mistake_severity, top1"))
    ]
    default, added, chosen = ([cell.strip() for cell in text.splitlines()[0].split("|")] for text in tables)
    assert added == [*default[:-2], "FPA ↑", "HierDist@10 ↓", *default[-2:]]
    lines = {line.split("|")[2].strip(" *"): line.split("|") for line in tables[1].splitlines()[2:5]}
    assert lines["cross-entropy"][8].strip() == lines["CRM"][8].strip() == "-"
    assert "+/-" in lines["level heads"][8] and "+/-" in lines["CRM"][9]
    assert chosen[3:5] == ["Mistake severity ↓", "Top-1 accuracy ↑"]
    assert any("competitive" in line for line in tables[2].splitlines()) and " *" in tables[2]


def test_without_the_option_nothing_changes(cli, folder, without_torch):
    """The output and the imports are the same; computed columns are only read."""
    before = leaderboard(cli, folder).ok().out
    table = leaderboard(cli, folder, "--metrics", "+ece").ok().out
    words = ("leaderboard", "--dataset", "shapes", "--runs", folder / "runs", "--data-dir", folder / "data")
    assert without_torch(*words).out == before
    assert without_torch(*words, "--metrics", "+ece").out == table


def test_run_checks_names_first_and_prints_the_columns(cli, folder):
    unknown = cli(folder, *[part.replace("epochs=1", "epochs=2") for part in RUN], "--metrics", "level_accuracy@4")
    assert "the tree has levels 1 to 3" in unknown.err and unknown.code == 2 and "train" not in unknown.err
    chosen = [part.replace(",./heads.py", "") for part in RUN]
    texts = [cli(folder, *chosen, "--metrics", "+hp_macro").ok().out for _ in range(2)]  # planned, then cached
    assert texts[0] == texts[1] and "hP macro ↑" in texts[0]
    assert (folder / "runs/leaderboard-shapes.md").read_text() == texts[0].removeprefix("\n")
    rows = json.loads(cli(folder, *chosen, "--json", "--metrics", "hp_macro").ok().out)["rows"]
    assert all(list(row["metrics"]) == [*PAPER_METRICS, "hp_macro"] for row in rows)
    cli(folder, *RUN).ok()


def test_predictions_that_were_only_scored(cli, folder, tree):
    """A row of scores has all metrics, a row of ranked classes the paper's; `score` prints the same numbers."""
    run = as_json(cli, folder)["ce"]["runs"][0]
    content = arrays(folder, run)
    np.savez(folder / "all.npz", scores=content["scores"].numpy(), targets=content["targets"].numpy())
    top = content["scores"].topk(5, dim=1).indices.numpy()
    np.savez(folder / "top.npz", classes=top, targets=content["targets"].numpy())
    work = folder / "scored"
    work.mkdir()
    shutil.copytree(folder / "data", work / "data")
    options = ["--dataset", "shapes", "--order", "tree", "--metrics", "+ece,+hf_micro"]
    done = json.loads(cli(work, "score", folder / "all.npz", *options, "--name", "all", "--json").ok().out)
    expected = compute_metrics(["ece", "hf_micro"], evidence(folder, tree, run))
    assert {name: done["metrics"][name]["mean"] for name in expected} == expected
    assert done["metrics"]["ece"]["low"] is None and done["metrics"]["top1"]["low"] is not None
    cells = cli(work, "score", folder / "top.npz", *options, "--name", "top").ok().out
    (line,) = (line for line in cells.splitlines() if "ECE ↓" in line)
    assert line == "Left out, as they need the scores of all classes, or more ranked ones: HierDist@20 ↓, ECE ↓."
    rows = as_json(cli, work, "--metrics", "+ece,+hf_micro")
    assert {name: rows["all"]["metrics"][name]["mean"] for name in expected} == expected
    assert rows["top"]["metrics"]["ece"]["mean"] is None and rows["top"]["metrics"]["top1"]["mean"] is not None
    wrong = ("--tree", "shapes", "--order", "tree", "--metrics", "level_accuracy@4")
    cli(work, "score", folder / "all.npz", *wrong).one_line("levels")


def numbers(table):
    cells = [re.findall(r"[\d.]+ \+/- [\d.]+", line) for line in table.splitlines()]
    return list(filter(None, cells))


def test_what_a_row_costs(cli, folder):
    """Parameters, time per image and of training; a re-ranked row has those of its base."""
    rows = json.loads(leaderboard(cli, folder, "--metrics", "parameters,seconds,training_seconds", "--json").ok().out)
    cost = {row["method"]: {name: cell["mean"] for name, cell in row["metrics"].items()} for row in rows["rows"]}
    assert cost["ce"]["training_seconds"] > 0 and cost["heads"]["parameters"] > cost["ce"]["parameters"] > 1000
    assert all(cost["crm"][name] == cost["ce"][name] for name in ("parameters", "training_seconds"))


def test_published_records_keep_their_columns(cli, folder):
    arguments = ["--metrics", "+mce,+tice"]
    table = leaderboard(cli, folder, *arguments).ok().out
    cli(folder, "publish", "--dataset", "shapes", *arguments, "--output", "public").ok()
    published = (folder / "public/shapes.md").read_text()
    assert "MCE ↓ (claimed) | TICE ↓ (claimed)" in re.sub(" +", " ", published)  # published predictions give none
    assert numbers(published) == numbers(table)
    assert not list((folder / "public").rglob("predictions.npz"))
    again = leaderboard(cli, folder, *arguments, "--runs", "public/shapes").ok().out  # without the predictions
    assert numbers(again) == numbers(table) and "mce, tice are claimed" in again
    other = leaderboard(cli, folder, "--metrics", "+hops,+mce", "--runs", "public/shapes").ok().out
    assert "not all columns could be computed of 6 runs that have no predictions here" in other
    cells = [line.split("|")[8:10] for line in other.splitlines()[2:5]]
    assert all(hops.strip() == "-" and "+/-" in mce for hops, mce in cells)


def test_a_run_with_damaged_predictions_is_not_counted(cli, folder, tmp_path):
    """Of two seeds of cross-entropy one is left, and of CRM, which re-ranks it; the table is shown."""
    shutil.copytree(folder, tmp_path / "copy")
    runs = tmp_path / "copy/runs"
    specs = {path.parent: json.loads(path.read_text()) for path in runs.glob("*/spec.json")}
    damaged = next(run for run, spec in specs.items() if spec["method"]["name"] == "ce" and spec["seed"] == 1)
    content = bytearray((damaged / "predictions.npz").read_bytes())
    content[len(content) // 2] ^= 1
    (damaged / "predictions.npz").write_bytes(content)
    rows = as_json(cli, tmp_path / "copy", "--metrics", "+ece")
    counted = {name: (row["n"], row["lacking"] if "lacking" in row else []) for name, row in rows.items()}
    assert counted == {"ce": (1, [1]), "crm": (1, [1]), "heads": (2, [])}
    assert all(len(cell["values"]) == rows[name]["n"] for name in rows for cell in rows[name]["metrics"].values())
