"""`--metrics`: columns that are computed from the predictions of finished runs, in every format and command."""

import csv
import io
import json
import shutil
import time

import numpy as np
import pytest
import torch
from scipy.stats import t

from hierbench import Hierarchy
from hierbench.hierarchy.readers import shipped_paths
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import asked_columns
from hierbench.leaderboard.formats import html
from hierbench.leaderboard.measured import with_columns
from hierbench.leaderboard.statistics import METRICS
from hierbench.leaderboard.tables.board import board_table
from hierbench.metrics import Evidence, compute_metrics
from hierbench.runs.store import Store
from tests.short import SMALL

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


def evidence(folder, tree, run, of=None):
    """What a run's metrics should be computed from; `of` is the run whose confidence it has."""
    own, base = arrays(folder, run), arrays(folder, of or run)
    probabilities = base["scores"].double().softmax(dim=1)
    return Evidence(own["scores"], own["targets"], tree, probabilities, own.get("level_predictions"))


def test_values_are_those_of_the_stored_predictions(cli, folder, tree):
    names = ["hf_macro", "ece", "information_severity", "fpa", "tice", "haurc_climbing", "level_accuracy_lifted@2"]
    rows = as_json(cli, folder, "--metrics", ",".join(names))
    for method in ("ce", "crm", "heads"):
        bases = rows["ce"]["runs"] if method == "crm" else [None, None]
        found = [
            compute_metrics(names, evidence(folder, tree, run, base))
            for run, base in zip(rows[method]["runs"], bases, strict=True)
        ]
        cells = rows[method]["metrics"]
        assert list(cells) == [*METRICS, *names]  # the contract's, then those asked for
        for name in names:
            values = [of_run[name] for of_run in found]
            if name in ("fpa", "tice") and method != "heads":
                assert cells[name] == {"mean": None, "ci95": None, "values": [None, None], "best": False}
                continue
            assert cells[name]["values"] == values
            half_width = t.ppf(0.975, 1) * np.std(values, ddof=1) / np.sqrt(2)
            assert cells[name]["mean"] == pytest.approx(np.mean(values), rel=1e-12)
            assert cells[name]["ci95"] == pytest.approx(half_width, rel=1e-12)
    assert rows["crm"]["metrics"]["ece"] != rows["ce"]["metrics"]["ece"]


def test_the_best_of_a_column_follows_its_direction(cli, folder):
    rows = as_json(cli, folder, "--metrics", "+hf_macro,+haurc_climbing")
    for name, best, digits in (("hf_macro", max, 2), ("haurc_climbing", min, 4)):
        means = {
            method: round(row["metrics"][name]["mean"], digits) for method, row in rows.items() if row["competitive"]
        }
        marked = {method for method, row in rows.items() if row["metrics"][name]["best"]}
        assert marked and marked <= {method for method, mean in means.items() if mean == best(means.values())}


def test_every_format(cli, folder):
    asked = ["--metrics", "level_accuracy@1,ece,haurc_climbing"]
    table = leaderboard(cli, folder, *asked).ok().out
    heads = [cell.strip() for cell in table.splitlines()[0].strip("|").split("|")]
    assert heads == ["Model", "Method", "Level 1 accuracy ↑", "ECE ↓", "hAURC (climbing) ↓", "Runs"]
    assert "\nLevel 1 accuracy, ECE in %; hAURC (climbing) between 0 and 1.\n" in table
    row = next(csv.DictReader(io.StringIO(leaderboard(cli, folder, *asked, "--format", "csv").ok().out)))
    assert {"ece", "ece ci95", "ece best", "competitive"} <= set(row) and "top1" not in row
    tex = leaderboard(cli, folder, *asked, "--format", "latex").ok().out
    assert (
        r"Model & Method & Level 1 accuracy $\uparrow$ & ECE $\downarrow$ & hAURC (climbing) $\downarrow$ & Runs" in tex
    )
    assert r"{l|l|cccl}" in tex and r"Level 1 accuracy, ECE in \%;" in tex
    store, columns = Store(folder / "runs"), asked_columns(asked[1])
    shown = html.fragment(board_table(with_columns(Board.of("shapes", store), columns, store, folder / "data")))
    assert "Level 1 accuracy&#160;↑</th>" in shown and "ECE&#160;↓</th>" in shown and "Top-1" not in shown
    numbers = [f"{float(row[name]):.4f}" for name in ("haurc_climbing", "haurc_climbing ci95")]
    assert all(" +/- ".join(numbers) in text for text in (table, tex)) and all(one in shown for one in numbers)


def test_names_with_a_plus_are_added(cli, folder):
    added = leaderboard(cli, folder, "--metrics", "+fpa,+hierdist@10").ok().out
    plain = leaderboard(cli, folder).ok().out
    heads, default = ([cell.strip() for cell in text.splitlines()[0].split("|")] for text in (added, plain))
    assert heads == [*default[:-2], "FPA ↑", "HierDist@10 ↓", *default[-2:]]
    lines = {line.split("|")[2].strip(" *"): line.split("|") for line in added.splitlines()[2:5]}
    assert lines["cross-entropy"][8].strip() == lines["CRM"][8].strip() == "-"
    assert "+/-" in lines["level heads"][8] and "+/-" in lines["CRM"][9]


def test_the_paper_s_columns_can_be_chosen(cli, folder):
    table = leaderboard(cli, folder, "--metrics", "mistake_severity, top1").ok().out
    heads = [cell.strip() for cell in table.splitlines()[0].split("|")]
    assert heads[3:5] == ["Mistake severity ↓", "Top-1 accuracy ↑"]
    assert [line for line in table.splitlines() if "competitive" in line] and " *" in table


def test_without_the_option_nothing_changes(cli, folder):
    """Neither what is printed nor what is imported, also after other columns were computed."""
    before = leaderboard(cli, folder).ok().out
    leaderboard(cli, folder, "--metrics", "+ece").ok()
    time.sleep(0.6)  # what was just written is not kept as verified
    assert leaderboard(cli, folder).ok().out == before
    code = (
        "import sys\n"
        "sys.argv = ['hierbench', 'leaderboard', '--dataset', 'shapes', *sys.argv[1:]]\n"
        "from hierbench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "assert 'torch' not in sys.modules\n"
        "print('metrics' if 'hierbench.metrics.registry' in sys.modules else 'no metrics')\n"
    )
    assert cli.real(folder, python=("-c", code)).ok().out == before + "no metrics\n"
    table = leaderboard(cli, folder, "--metrics", "+ece").ok().out
    again = cli.real(folder, "--metrics", "+ece", python=("-c", code)).ok()  # the second table only reads
    assert again.out == table + "metrics\n"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--metrics", "hf_macr"], "unknown metric 'hf_macr'; did you mean 'hf_macro'?"),
        (["--metrics", "+ECE"], "unknown metric 'ECE'; did you mean 'ece'?"),
        (["--metrics", "level_accuracy@4"], "the tree has levels 1 to 3"),
        (["--metrics", "hierdist@49"], "the tree has 48 classes"),
        (["--metrics", "ece,+fpa"], "put + before all names"),
        (["--metrics", ""], "give names separated by commas"),
        (["--metrics", "ece,,fpa"], "give names separated by commas"),
        (["--metrics", "+"], "give names separated by commas"),
        (["--metrics", "ece", "--numbers", "paper"], "for runs alone"),
        (["--metrics", "ece", "--numbers", "both"], "for runs alone"),
    ],
)
def test_a_mistake_is_one_line(cli, folder, arguments, part):
    assert leaderboard(cli, folder, *arguments).one_line(part)


def test_run_checks_names_first_and_prints_the_columns(cli, folder):
    assert cli(folder, *RUN, "--metrics", "hf_macr").one_line("did you mean 'hf_macro'?")
    unknown = cli(folder, *[part.replace("epochs=1", "epochs=2") for part in RUN], "--metrics", "level_accuracy@4")
    assert "the tree has levels 1 to 3" in unknown.err and unknown.code == 2 and "train" not in unknown.err
    chosen = [part.replace(",./heads.py", "") for part in RUN]
    texts = [cli(folder, *chosen, "--metrics", "+hp_macro").ok().out for _ in range(2)]  # planned, then cached
    assert texts[0] == texts[1] and "hP macro ↑" in texts[0]
    assert (folder / "runs/leaderboard-shapes.md").read_text() == texts[0].removeprefix("\n")
    rows = json.loads(cli(folder, *chosen, "--json", "--metrics", "hp_macro").ok().out)["rows"]
    assert all(list(row["metrics"]) == [*METRICS, "hp_macro"] for row in rows)
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
    asked = ["--dataset", "shapes", "--metrics", "+ece,+hf_micro"]
    done = json.loads(cli(work, "score", folder / "all.npz", *asked, "--name", "all", "--json").ok().out)
    expected = compute_metrics(["ece", "hf_micro"], evidence(folder, tree, run))
    assert {name: done["metrics"][name]["mean"] for name in expected} == expected
    assert done["metrics"]["ece"]["low"] is None and done["metrics"]["top1"]["low"] is not None
    cells = cli(work, "score", folder / "top.npz", *asked, "--name", "top").ok().out
    line = next(line for line in cells.splitlines() if "ECE ↓" in line)
    assert [cell.strip() for cell in line.strip("|").split("|")] == ["ECE ↓", "-", "-", "-"]
    rows = as_json(cli, work, "--metrics", "+ece,+hf_micro")
    assert {name: rows["all"]["metrics"][name]["mean"] for name in expected} == expected
    assert rows["top"]["metrics"]["ece"]["mean"] is None and rows["top"]["metrics"]["top1"]["mean"] is not None
    assert cli(work, "score", folder / "all.npz", "--tree", "shapes", "--metrics", "level_accuracy@4").one_line(
        "levels"
    )


def test_published_records_keep_their_columns(cli, folder):
    arguments = ["--metrics", "+mce,+tice"]
    table = leaderboard(cli, folder, *arguments).ok().out
    leaderboard(cli, folder, *arguments, "--publish", "public").ok()
    assert (folder / "public/shapes.md").read_text() == table
    assert not list((folder / "public").rglob("predictions.npz"))
    again = leaderboard(cli, folder, *arguments, "--runs", "public/shapes").ok().out  # without the predictions
    assert again == table
    other = leaderboard(cli, folder, "--metrics", "+hops,+mce", "--runs", "public/shapes").ok().out
    assert "not all columns could be computed of 6 runs that have no predictions here" in other
    cells = [line.split("|")[8:10] for line in other.splitlines()[2:5]]
    assert all(hops.strip() == "-" and "+/-" in mce for hops, mce in cells)


@pytest.mark.parametrize("kind", ["operating", "levels"])
def test_plots(cli, folder, kind):
    done = cli(folder, "plot", kind, "--dataset", "shapes").ok()
    assert done.out.endswith(f"wrote runs/plots/{kind}-shapes.svg\n")
    content = (folder / f"runs/plots/{kind}-shapes.svg").read_text(encoding="utf-8")
    area = as_json(cli, folder, "--metrics", "haurc_climbing")["heads"]["metrics"]["haurc_climbing"]
    shown = {"operating": f"level heads: {area['mean']:.4f} +/- {area['ci95']:.4f}", "levels": "12 nodes"}[kind]
    assert "CRM" in content and "level heads" in content and shown in content
    assert cli(folder, "plot", kind, "--dataset", "shapes", "--seed", "1").one_line("--seed is for confusion")


def test_the_mistakes_page_has_both(cli, folder):
    cli(folder, "mistakes", "--dataset", "shapes", "ce", "heads", "--limit", "0").ok()
    page = (folder / "runs/mistakes-shapes.html").read_text(encoding="utf-8")
    rows = as_json(cli, folder, "--metrics", "haurc_climbing,level_accuracy@1,level_accuracy_lifted@1")
    for method in ("ce", "heads"):
        cells = rows[method]["metrics"]
        for name, digits in (("haurc_climbing", 4), ("level_accuracy@1", 2), ("level_accuracy_lifted@1", 2)):
            assert f"{cells[name]['values'][0]:.{digits}f}" in page, (method, name)
    assert page.count("<polyline") == 2
