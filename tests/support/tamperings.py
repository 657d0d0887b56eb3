"""Ways to tamper with a folder of runs or of published records, for the tests of all that reads one.

A folder has runs of ce, crm and flamingo of type-I with seeds 0 to 2, whose predictions are stored (predictions.npz) or
published (predictions-compact.npz), and a table. Each function changes it as a forger would, who can compute digests
too, and returns what must be found. A run under another method's name with a fresh id is not among them: only a second
training can tell.
"""

import csv
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

from hierbench.config.spec import json_digest
from hierbench.data.datasets import shapes
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics import Tally
from hierbench.runs import compact
from hierbench.runs.further_metrics import values_content
from hierbench.runs.integrity import fingerprints
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Run, Store
from hierbench.sharing import published_tree
from hierbench.utils.files import write_json
from tests.support import run_files

PREDICTIONS = "predictions.npz"
RECORDED = ("metrics.json", PREDICTIONS, compact.COMPACT_FILE, "history.csv", "environment.json")


@dataclass
class Found:
    """The findings that a tampering must give.

    Attributes:
        lines: pairs (who, what) of which each must be in a line: a run's first 12 digits, a row or table, and a regular
            expression of what is said of it.
        counted: {method: runs of its row that still count}.
        refused: whether nothing is published of it; otherwise it is, as what it is.
        damaged: whether digests disagree, so that a table of one's own runs leaves it out, too.
        unfinished: whether nothing is published as a row is not finished.
        silent: whether `verify` alone says it.
    """

    lines: list[tuple[str, str]]
    counted: dict[str, int] = field(default_factory=dict)
    refused: bool = True
    damaged: bool = False
    unfinished: bool = False
    silent: bool = False


class Folder:
    """A folder of runs of `shapes`, or of the records of their published table, and where its data is prepared."""

    def __init__(self, path, tree=None, data_dir=None):
        self.path, self.tree, self.data_dir = Path(path), tree, data_dir

    def run(self, method, seed):
        """Return a run by its spec."""
        for run in Store(self.path).runs():
            spec = run_files.spec_of(run)
            if (spec.get("method", {}).get("name"), spec.get("seed")) == (method, seed):
                return run
        raise LookupError((method, seed))

    @property
    def table(self):
        """The table's JSON."""
        beside = self.path.parent / "shapes.json"
        return beside if beside.exists() else self.path / "leaderboard-shapes.json"


def edit(run, name, **values):
    """Change entries of a JSON file, those of a section with section__key."""
    path = run.folder / name
    content = json.loads(path.read_text())
    for key, value in values.items():
        section, _, rest = key.rpartition("__")
        (content[section] if section else content)[rest] = value
    path.write_text(json.dumps(content, indent=1) + "\n")


def reseal(run, **digests):
    """Record the files as they are now; those that are not there keep their digest, or get another."""
    status = json.loads((run.folder / "status.json").read_text())
    before = status["files"]
    status["files"] = {name: record for name, record in before.items() if name == PREDICTIONS}
    for record in status["files"].values():
        record.update(digests)
    status["files"] |= fingerprints(run.folder)
    run.write_record("status.json", status)


def predictions_of(run):
    """Return scores and targets of a run; of published predictions, scores that rank alike."""
    if (run.folder / PREDICTIONS).exists():
        return run_files.predictions_of(run)
    packed = compact.read_compact(run.folder)
    scores = np.zeros((len(packed.ranked), packed.num_classes), dtype=np.float32)
    np.put_along_axis(scores, packed.ranked, np.arange(packed.ranked.shape[1], 0, -1, dtype=np.float32)[None], axis=1)
    return scores, compact.read_targets(run.folder.parent)


def predict(run, scores, targets, tree=None, source=None):
    """Replace predictions in the form that is there and, with a tree, the metrics that follow from them."""
    if (run.folder / PREDICTIONS).exists():
        np.savez(run.folder / PREDICTIONS, scores=scores, targets=targets)
    if (run.folder / compact.COMPACT_FILE).exists():
        compact.write_compact(run.folder, scores, targets, source or run_files.digest_of(run, PREDICTIONS))
    if tree is not None:
        test, mistakes = metrics_of(scores, targets, tree)
        edit(run, "metrics.json", test=test, mistakes_by_distance=mistakes)


def metrics_of(scores, targets, tree):
    """Return the metrics of predictions as a record has them, and the mistakes at each distance."""
    tally = Tally(tree)
    tally.add(torch.from_numpy(scores), torch.from_numpy(targets))
    metrics = {name: None if value != value else value for name, value in tally.metrics().items()}
    return metrics, tally.mistakes_by_distance()


def respecify(run, **changes):
    """Change the spec of a run and name its folder after it."""
    edit(run, "spec.json", **changes)
    return rename(run)


def rename(run):
    """Name a run's folder after its spec."""
    content = json.loads((run.folder / "spec.json").read_text())
    target = run.folder.with_name(json_digest(content))
    run.folder.rename(target)
    return Run(target)


def short(run):
    """Return the name of a run in lines."""
    return run.folder.name[:12]


def _improve(run, tree=None, source=None):
    scores, targets = predictions_of(run)
    scores[np.arange(150), targets[:150]] += 100.0
    predict(run, scores, targets, tree, source)


def edited_metric(folder):
    """One number of a record is better."""
    run = folder.run("ce", 1)
    edit(run, "metrics.json", test__top1=99.2)
    return Found([(short(run), "metrics.json")], {"ce": 2}, damaged=True)


def edited_predictions(folder):
    """The predictions of a run are better than its metrics."""
    run = folder.run("ce", 1)
    _improve(run)
    return Found([(short(run), r"predictions\.npz|by its predictions")], {"ce": 2})


def both_resealed(folder):
    """Predictions are better, metrics follow from them, and all is sealed again; the re-ranked run differs."""
    run, above = folder.run("ce", 2), folder.run("crm", 2)
    _improve(run, folder.tree, source="e" * 64)
    reseal(run, sha256="e" * 64)
    return Found([(short(above), f"re-ranks other predictions than those that its base {short(run)}")], {"crm": 2})


def status_without_digests(folder):
    """A finished run records no digest of its files."""
    run = folder.run("flamingo", 0)
    run.write_record("status.json", {"state": "done", "seconds": 1.0})
    return Found([(short(run), r"status\.json")], {"flamingo": 2}, damaged=True)


def best_seed_copied(folder):
    """The best seed is copied over all others."""
    runs = [folder.run("flamingo", seed) for seed in range(3)]
    best = max(runs, key=lambda run: run_files.metrics_of(run)["test"]["top1"])
    for run in runs:
        for name in RECORDED if run != best else ():
            if (best.folder / name).exists():
                shutil.copy(best.folder / name, run.folder / name)
        reseal(run)
    return Found([(short(run), "it has the same") for run in runs], {"flamingo": 0})


def worst_seed_dropped(folder):
    """The worse of two seeds is left out; without the last, a row would only be shorter, which is no reason."""
    runs = [folder.run("flamingo", seed) for seed in range(2)]
    shutil.rmtree(min(runs, key=lambda run: run_files.metrics_of(run)["test"]["top1"]).folder)
    return Found([("row shapes flamingo type-I", r"seed \d of 0\.\.2 is missing")], {"flamingo": 2})


def invented_seeds(folder):
    """A seed is copied, with another number, to folders with invented names."""
    run = folder.run("flamingo", 0)
    folders = [Run(run.folder.with_name(name)) for name in ("f" * 64, "my-best-run", "d" * 64)]
    for copy in folders:
        shutil.copytree(run.folder, copy.folder)
        edit(copy, "spec.json", seed=3)
        reseal(copy)
    named = rename(folders.pop())
    lines = [(short(copy), "its folder is not named after its spec") for copy in folders]
    return Found([*lines, (short(named), "it has the same")], {"flamingo": 2})


def results_swapped(folder):
    """Two methods have each other's results, titles included."""
    first, second = folder.run("ce", 0), folder.run("flamingo", 0)
    for path in [first.folder / name for name in ("status.json", *RECORDED) if (first.folder / name).exists()]:
        content, beside = path.read_bytes(), second.folder / path.name
        beside.replace(path)
        beside.write_bytes(content)
    for run, title in ((first, "cross-entropy"), (second, "Flamingo")):
        edit(run, "metrics.json", title=title)
        reseal(run)
    above = folder.run("crm", 0)
    return Found([(short(above), f"re-ranks other predictions than those that its base {short(first)}")], {"crm": 2})


def forged_code(folder):
    """The runs of a row say that they ran other code; the row is shown as one of that code."""
    for seed in range(3):
        reseal(respecify(folder.run("flamingo", seed), method__code="0" * 64))
    return Found(
        [("flamingo type-I seed 0", "other code: flamingo ran with version 1, code 000000000000")], refused=False
    )


def forged_environment(folder):
    """A run says that it was made elsewhere; the table says so."""
    run = folder.run("flamingo", 1)
    edit(run, "environment.json", device="NVIDIA H100")
    reseal(run)
    pattern = "several environments: seed 1 with device NVIDIA H100"
    return Found([("row shapes flamingo type-I", pattern)], {"flamingo": 3}, refused=False)


def impossible_values(folder):
    """A result that no predictions could have."""
    run = folder.run("ce", 0)
    edit(run, "metrics.json", test__mistake_severity=0.5)
    reseal(run)
    return Found([(short(run), r"mistake_severity is 0\.5 in metrics\.json, and [\d.]+ by its predictions")], {"ce": 2})


def targets_from_predictions(folder):
    """The targets of a run equal its predictions, and its metrics follow."""
    run = folder.run("flamingo", 1)
    scores, _ = predictions_of(run)
    predict(run, scores, scores.argmax(axis=1), folder.tree)
    reseal(run)
    return Found([(short(run), "its targets are not those of the")], {"flamingo": 2})


def edited_table(folder):
    """A number of the table is better than its records."""
    content = json.loads(folder.table.read_text())
    content["rows"][0]["metrics"]["top1"]["mean"] = 99.2
    folder.table.write_text(json.dumps(content))
    pattern = "top1 mean is 99.2, the records give"
    return Found([(f"table {folder.table.with_suffix('')}", pattern)], refused=False)


def flat_tree(folder):
    """The tree is one of families and classes alone, beside the records; digests, ids, bases and metrics follow."""
    paths = [(shapes.class_paths()[name][0], name) for name in folder.tree.classes]
    tree, ids, lines = Hierarchy.from_paths({path[-1]: path for path in paths}, "height"), {}, []
    published_tree.write_tree(folder.path, paths)
    for run in sorted(Store(folder.path).runs(), key=lambda run: run_files.spec_of(run)["base"] is not None):
        base = ids.get(run_files.spec_of(run)["base"])
        before, run = run.folder.name, respecify(run, dataset__hierarchy=tree.digest(), base=base)
        ids[before] = run.folder.name
        scores, targets = predictions_of(run)
        test, mistakes = metrics_of(scores, targets, tree)
        edit(run, "metrics.json", test=test, mistakes_by_distance=mistakes)
        if base is None:
            num = json.loads((run.folder / "environment.json").read_text())["data"]["splits"]["val"]
            val, _ = metrics_of(scores[:num], targets[:num], tree)
            edit(run, "metrics.json", val=val)
            heads, *_, last = csv.reader((run.folder / "history.csv").read_text().splitlines())
            last = [repr(val[head[4:]]) if head[4:] in val else value for head, value in zip(heads, last, strict=True)]
            (run.folder / "history.csv").write_text(f"{','.join(heads)}\n{','.join(last)}\n")
        reseal(run)
        lines.append((short(run), "its tree [0-9a-f]{12} is not that of shapes, whose digest ships"))
    return Found(lines, dict.fromkeys(("ce", "crm", "flamingo"), 0))


def key_twice(folder):
    """A spec has a key twice, so that two readers may read two specs."""
    run = folder.run("flamingo", 0)
    path = run.folder / "spec.json"
    path.write_text(path.read_text().replace("{", '{"seed": 5, ', 1))
    reseal(run)
    return Found([(short(run), "spec.json .*has the key 'seed' twice"), GAP], {"flamingo": 2}, damaged=True)


GAP = ("row shapes flamingo type-I", r"seed 0 of 0\.\.2 is missing")
IMPOSSIBLE = {"a path": "../x", "too long": "x" * 300, "controls": "shapes\x1b[2J"}


def impossible_name(name):
    """A spec names a dataset that no dataset can be called."""

    def tamper(folder):
        run = respecify(folder.run("flamingo", 0), dataset__name=IMPOSSIBLE[name])
        reseal(run)
        return Found([(short(run), "spec.json .*dataset"), GAP], {"flamingo": 2})

    tamper.__name__ = f"impossible_name_{name.replace(' ', '_')}"
    return tamper


def long_title(folder):
    """A title that would push everything else off a page."""
    run = folder.run("flamingo", 0)
    edit(run, "metrics.json", title="F" * 101)
    reseal(run)
    return Found([(short(run), "titled|its title has 101 characters")], {"flamingo": 2})


def _ask(folder, *requests):
    """Write the requests of a folder: (kind, runs), or whole lines."""
    lines = []
    for kind, runs in requests:
        content = {"kind": kind, "dataset": "shapes", "options": {}, "ids": [run.folder.name for run in runs]}
        digest = json_digest([kind, "shapes", {}, content["ids"], {}])[:16]
        lines.append(json.dumps({"request": digest, "time": "", "version": "", **content, "budget": {}}) + "\n")
    (folder.path / "requests.jsonl").write_text("".join(lines))


def _hide(folder, hidden):
    """Call runs an ablation, and make the table without them."""
    runs = Store(folder.path).runs()
    _ask(folder, ("comparison", [run for run in runs if run not in hidden]), ("ablation", hidden))
    content, names = json.loads(folder.table.read_text()), {run.folder.name for run in hidden}
    for row in content["rows"]:
        row["runs"] = [run_id for run_id in row["runs"] if run_id not in names]
    content["rows"] = [row for row in content["rows"] if row["runs"]]
    folder.table.write_text(json.dumps(content))


def _table(folder, pattern):
    return f"table {folder.table.with_suffix('')}", pattern


def seed_called_ablation(folder):
    """The bad seed of each row is asked for by an ablation alone; it counts all the same."""
    _hide(folder, [folder.run(method, 1) for method in ("ce", "crm", "flamingo")])
    return Found(
        [_table(folder, "is of runs that no row of the records has|is in no row|the records give")], refused=False
    )


def method_called_ablation(folder):
    """A method that no comparison asked for is a row all the same; a table of one's own may have fewer methods."""
    _hide(folder, [folder.run("flamingo", seed) for seed in range(3)])
    published = folder.table.parent != folder.path
    lines = [_table(folder, "the row Flamingo type-I, which the records have, is missing")] if published else []
    return Found(lines, refused=False)


def seed_called_unfinished(folder):
    """The bad seed of one row says that it failed; nothing is published of a row that is not finished."""
    run = folder.run("flamingo", 1)
    run.write_record("status.json", {"state": "failed", "error": "memory"})
    published = folder.table.parent != folder.path
    lines = [_table(folder, f"the run {short(run)} .* is planned and not finished")] if published else []
    return Found([*lines, (short(run), "unfinished")], {"flamingo": 2}, unfinished=True)


def further_metric_invented(folder):
    """Metrics beyond the paper's are better: one that follows from ranks, and one that needs probabilities."""
    content = json.loads(folder.table.read_text())
    content["columns"] = ["top1", "mistake_severity", "hf_macro", "ece"]
    for row in content["rows"]:
        row["metrics"] |= {
            name: {"mean": 0.26, "ci95": 0.0, "values": [0.26] * 3, "best": True} for name in ("hf_macro", "ece")
        }
    folder.table.write_text(json.dumps(content))
    records = read_records(folder.path)
    for record in records:
        write_json(
            record.folder / "further-metrics.json", values_content(record, records, {"hf_macro": 0.26, "ece": 0.26})
        )
    run = folder.run("flamingo", 0)
    pattern = r"hf_macro is 0\.26 in further-metrics\.json, and [\d.]+ by its predictions"
    return Found([(short(run), pattern)], refused=False, silent=True)


def claimed_metric(folder):
    """A metric that needs probabilities is better than any: of published records it is claimed, and not ranked."""
    content = json.loads(folder.table.read_text())
    content["columns"] = ["top1", "mistake_severity", "ece"]
    for row in content["rows"]:
        row["metrics"]["ece"] = {"mean": 0.26, "ci95": 0.0, "values": [0.26] * 3, "best": True}
    folder.table.write_text(json.dumps(content))
    records = read_records(folder.path)
    for record in records:
        write_json(record.folder / "further-metrics.json", values_content(record, records, {"ece": 0.26}))
    if folder.table.parent == folder.path:
        pattern = r"ece is 0\.26 in further-metrics\.json, and [\d.]+ by its predictions"
        return Found([(short(folder.run("ce", 0)), pattern)], refused=False, silent=True)
    return Found([_table(folder, "metrics ece best is True, the records give False")], refused=False)


def endless_metric(folder):
    """A number whose sum over seeds is infinite is not a value."""
    for seed in range(3):
        run = folder.run("ce", seed)
        edit(run, "metrics.json", test__top1=1.7e308)
        reseal(run)
    return Found([(short(folder.run("ce", 0)), "metrics.json holds no possible result")], {"ce": 0})


def budget_invented(folder):
    """A search with a negative number of trials is not a budget."""
    runs = [run.folder.name for run in Store(folder.path).runs()]
    budget = {"flamingo:type-I": {"trials": -5, "runs": True, "study": "s"}}
    digest = json_digest(["comparison", "shapes", {}, runs, budget])[:16]
    line = {"request": digest, "kind": "comparison", "dataset": "shapes", "ids": runs, "budget": budget}
    (folder.path / "requests.jsonl").write_text(json.dumps(line) + "\n")
    return Found(
        [("Not known from any record", "how long hyperparameters were searched for")], refused=False, silent=True
    )


def request_of_another_id(folder):
    """A request whose id is not the digest of its content is ignored."""
    _ask(folder, ("comparison", Store(folder.path).runs()))
    path = folder.path / "requests.jsonl"
    path.write_text(path.read_text().replace('"options": {}', '"options": {"seeds": 9}'))
    return Found([("requests.jsonl", "1 line is ignored, as the id is not the digest of the content")], refused=False)


def requests_elsewhere(folder):
    """A link in place of the requests is not followed, and costs a note."""
    path = folder.path / "requests.jsonl"
    path.unlink(missing_ok=True)
    path.symlink_to("/etc/passwd")
    return Found([("requests.jsonl", "cannot be read.*it is ignored")], refused=False)


def endless_requests(folder):
    """More than 8 MiB of requests are not read."""
    (folder.path / "requests.jsonl").write_bytes(b"{}\n" * (3 << 20))
    return Found([("requests.jsonl", "more than 8 MiB; it is ignored")], refused=False)


def untrue_settings(folder):
    """The page of a published table says that its runs were trained for longer."""
    page = folder.table.with_suffix(".md")
    text = page.read_text()
    assert "Settings: " in text
    page.write_text(text.replace("Settings: ", "Settings: 200 epochs, "))
    published = folder.table.parent != folder.path
    lines = [_table(folder, "Settings: 200 epochs.* the records give ")] if published else []
    return Found(lines, refused=False, silent=True)


TAMPERINGS = (
    edited_metric,
    edited_predictions,
    both_resealed,
    status_without_digests,
    best_seed_copied,
    worst_seed_dropped,
    invented_seeds,
    results_swapped,
    forged_code,
    forged_environment,
    impossible_values,
    targets_from_predictions,
    edited_table,
    flat_tree,
    key_twice,
    *map(impossible_name, IMPOSSIBLE),
    long_title,
    seed_called_ablation,
    method_called_ablation,
    seed_called_unfinished,
    further_metric_invented,
    claimed_metric,
    endless_metric,
    budget_invented,
    request_of_another_id,
    requests_elsewhere,
    endless_requests,
    untrue_settings,
)
