"""Publishing and updating: evidence in compact form, nothing rejected, never half of it."""

import csv
import json
import re
import shutil
import signal
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hierbench.api.registry import digest_of_code
from hierbench.config.options import RunSelection
from hierbench.leaderboard.columns import requested_columns
from hierbench.runs.compact import COMPACT_FILE, read_compact, read_targets
from hierbench.runs.method_files import kept_source, source_folders
from hierbench.runs.record_reader import read_records
from hierbench.runs.run_archive import opened, pack_folder
from hierbench.runs.store import Store
from hierbench.sharing import publication_folder
from hierbench.sharing.publication import publish
from hierbench.sharing.publication_folder import PUBLISHED_PICTURES
from hierbench.sharing.verification.verification import verify
from hierbench.utils.errors import UserError
from tests.support.publications import loose
from tests.support.run_files import predictions_of, spec_of


@pytest.fixture
def copied(trained, tmp_path):
    """Copies runs of methods into a new folder."""

    def copy(name, *methods, seeds=3):
        for run in Store(trained).runs():
            spec = spec_of(run)
            if spec["method"]["name"] in methods and spec["seed"] < seeds:
                shutil.copytree(run.folder, tmp_path / name / run.folder.name)
        return tmp_path / name

    return copy


@pytest.fixture
def put(tmp_path, data_dir):
    """Publishes into `boards`."""

    def put(runs, **options):
        return publish("shapes", tmp_path / "boards", RunSelection(runs, data_dir), draw=False, **options)

    return put


def rows_of(folder):
    return {row["method"]: row for row in json.loads((folder / "shapes.json").read_text())["rows"]}


def files_in(folder):
    """The content of all files in a folder by path, of an archive of records by member."""
    place = opened(folder)
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def respecified(runs, tamperings, tree=None, **changes):
    """Other runs of the same methods; with a tree their predictions are worse."""
    for run in list(Store(runs).runs()):
        if tree is not None:
            scores, targets = tamperings.predictions_of(run)
            scores[:150] = np.random.default_rng(spec_of(run)["seed"]).permuted(scores[:150], axis=1)  # of 384
            tamperings.predict(run, scores, targets, tree)
        tamperings.reseal(tamperings.respecify(run, **changes))
    return runs


@pytest.fixture(scope="module")
def boards(cli, trained, data_dir, tmp_path_factory):
    """A publication by the command, with pictures."""
    folder = tmp_path_factory.mktemp("published")
    before = files_in(trained)
    options = ("--dataset", "shapes", "--runs", trained, "--data-dir", data_dir, "--output", "boards")
    done = cli(folder, "publish", *options)
    assert "9 runs: 9 recomputed" in done.ok().out and done.err == "" and files_in(trained) == before
    return folder / "boards"


@pytest.fixture(scope="module")
def loose_boards(boards, tmp_path_factory):
    """The same with its records as files."""
    return loose(Path(shutil.copytree(boards, tmp_path_factory.mktemp("loose") / "boards")))


def test_the_records_are_one_archive_of_fixed_bytes(boards, loose_boards, tmp_path):
    """Packed again it is the same; read from either form the records are."""
    archive = boards / "shapes/runs.zip"
    assert [path.name for path in (boards / "shapes").iterdir()] == ["runs.zip"]
    folder = Path(shutil.copytree(loose_boards / "shapes", tmp_path / "shapes"))
    pack_folder(folder)
    assert (folder / "runs.zip").read_bytes() == archive.read_bytes()
    packed, files = (read_records(place / "shapes") for place in (boards, loose_boards))
    assert [run.id for run in packed] == [run.id for run in files] and packed.requests == files.requests
    assert all(run.metrics == packed[run.id].metrics for run in files)


@pytest.mark.parametrize("name", ["../outside.json", "a" * 64 + "/../spec.json", "/etc/x.json", "x.json/y/z.json"])
def test_an_archive_with_other_members_is_refused(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "runs.zip", "w") as archive:
        archive.writestr(name, "{}")
    with pytest.raises(UserError, match="is no file of records"):
        read_records(tmp_path)


def test_a_publication_has_the_table_in_all_formats_with_pictures(boards):
    kinds = (".csv", ".json", ".md", ".tex", "-severity.svg", "-tradeoff.svg", "-verdict.json")
    assert {path.name for path in boards.iterdir()} == {"shapes", "methods", *(f"shapes{kind}" for kind in kinds)}
    assert len(list(csv.DictReader((boards / "shapes.csv").read_text().splitlines()))) == 3


def test_a_page_has_a_heading_a_command_and_links(boards):
    heading, command, links, *_ = (boards / "shapes.md").read_text(encoding="utf-8").split("\n\n")
    assert heading == "# Shapes (generated)" and command.startswith("    hierbench run --methods ")
    assert [*re.findall(r"\]\((.*?)\)", links)] == [f"shapes-{kind}.svg" for kind in PUBLISHED_PICTURES]


def test_the_sources_that_ran_are_published_once(boards, trained):
    codes = {(run.job.method.name, run.method_digest) for run in read_records(trained)}
    sources = {path.name: path.read_bytes() for path in (boards / "methods").iterdir()}
    assert sources.keys() == {f"{name}-{code[:12]}.py" for name, code in codes}
    for name, code in codes:
        assert digest_of_code(sources[f"{name}-{code[:12]}.py"]) == code


def test_compact_predictions_rank_as_the_runs(loose_boards, trained):
    targets = read_targets(loose_boards / "shapes")
    for run in Store(trained).runs():
        scores, run_targets = predictions_of(run)
        compact = read_compact(loose_boards / "shapes" / run.folder.name)
        assert np.array_equal(compact.ranked[:, 0], scores.argmax(axis=1)) and np.array_equal(targets, run_targets)


def test_a_published_record_has_no_scores_and_no_checkpoint(loose_boards):
    assert {path.name for path in loose_boards.glob("shapes/*/*")} == {
        COMPACT_FILE, "spec.json", "status.json", "metrics.json", "environment.json", "history.csv"
    }  # fmt: skip


def test_a_publication_is_recomputed_without_the_data(boards, tmp_path):
    (folder,) = json.loads((boards / "shapes-verdict.json").read_text())["folders"]
    assert folder["folder"] == "shapes" and folder["counts"]["recomputed"] == 9 and folder["rejected"] == 0
    (report,) = verify([boards / "shapes"], tmp_path / "no-data")
    assert report.num_rejected == 0 and report.counts()["recomputed"] == 9


@pytest.mark.parametrize("place", ["methods", "shapes/methods"])
def test_a_source_is_found_with_all_tables_and_with_one(tmp_path, place):
    content = b"number = 1\n"
    digest = digest_of_code(content)
    method = SimpleNamespace(name="mine")
    run = SimpleNamespace(job=SimpleNamespace(method=method), method_digest=digest, folder=tmp_path / "run")
    path = tmp_path / place / f"mine-{digest[:12]}.py"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    assert kept_source(run, source_folders(tmp_path / "shapes")) == (path, content)
    path.write_bytes(content + b"number = 2\n")
    assert kept_source(run, source_folders(tmp_path / "shapes")) is None


def test_publishing_twice_is_the_same_publication(copied, put, tmp_path):
    runs, boards = copied("one", "ce", seeds=1), tmp_path / "boards"
    put(runs)
    before = files_in(boards)
    assert put(runs).lines[0] == "no run added or removed" and files_in(boards) == before


def test_files_without_their_records_are_named(copied, put, tmp_path):
    runs, boards = copied("one", "ce", seeds=1), tmp_path / "boards"
    put(runs)
    (boards / "shapes-frozen.json").write_text("{}")  # another dataset's
    for moved in ("shapes", "shapes.md", "shapes.csv", "shapes.tex", "shapes-verdict.json"):
        (boards / moved).rename(tmp_path / moved)
        with pytest.raises(UserError) as error:
            put(runs)
        names, _, way = str(error.value).removeprefix(f"{boards} has ").partition(" without the records of shapes")
        others = {"shapes-frozen.json", "methods"}
        assert names.split(", ") == sorted({path.name for path in boards.iterdir()} - others) and "move these" in way
    (boards / "shapes.json").unlink()
    assert "wrote" in put(runs).lines[-1]


def runs_of_flamingo(folder):
    """Return {seed: run}."""
    specs = {run: spec_of(run) for run in Store(folder).runs()}
    return {spec["seed"]: run for run, spec in specs.items() if spec["method"]["name"] == "flamingo"}


def test_an_unfinished_run_is_named_with_the_command_that_finishes_it(copied, put):
    runs = copied("one", "ce", "flamingo")
    run_by_seed = runs_of_flamingo(runs)
    for name in ("metrics.json", "predictions.npz"):
        (run_by_seed[1].folder / name).unlink()
    run_by_seed[1].set_status("failed", error="out of memory")
    with pytest.raises(UserError, match="run it again, or remove") as error:
        put(runs)
    _, _, places = str(error.value).partition("or remove ")
    folders = [path for place in places.split(", ") for path in runs.parent.glob(place.removeprefix(f"{runs.parent}/"))]
    assert folders == [run_by_seed[1].folder, run_by_seed[2].folder]  # without a gap in its seeds
    for folder in folders:
        shutil.rmtree(folder)
    assert "4 recomputed" in put(runs).lines[-1]


@pytest.mark.parametrize("seed", [0, 2])
def test_a_run_with_a_damaged_spec_is_named(seed, copied, put, trained):
    """Also the last seed of a row, without which it would be one of fewer."""
    runs = copied("one", "ce", "flamingo")
    shutil.copy(trained / "requests.jsonl", runs)
    run_by_seed = runs_of_flamingo(runs)
    (run_by_seed[seed].folder / "spec.json").write_text("{")
    with pytest.raises(
        UserError, match=rf"nothing is published: .*{run_by_seed[seed].folder.name[:12]}.*is damaged \(spec.json"
    ):
        put(runs)


def test_an_update_adds_and_keeps(copied, put, tmp_path, cli, data_dir):
    boards = tmp_path / "boards"
    put(copied("one", "ce", "crm"))
    earlier = files_in(boards / "shapes")
    (boards / "other.txt").write_text("kept")
    (boards / "shapes-answers.svg").write_text("of the earlier table")
    lines = put(copied("two", "flamingo", seeds=2)).lines
    gone = "removed shapes-answers.svg, which cannot be made of the new table"
    assert lines[0] == f"added 2 of flamingo type-I; {gone}" and "8 recomputed" in lines[1]
    rows = rows_of(boards)
    assert {name: (row["n"], row["verdict"]) for name, row in rows.items()} == {
        "ce": (3, "recomputed"), "crm": (3, "recomputed"), "flamingo": (2, "recomputed")
    }  # fmt: skip
    now = files_in(boards / "shapes")
    assert all(now[path] == content for path, content in earlier.items() if not path.endswith("requests.jsonl"))
    assert (boards / "other.txt").read_text() == "kept"
    assert put(copied("three", "flamingo")).lines[0] == "added 1 of flamingo type-I"
    assert put(copied("three again", "flamingo")).lines[0] == "no run added or removed"
    again = cli(tmp_path, "publish", "--dataset", "shapes", "--runs", boards / "shapes", "--output", "copy").ok()
    assert "9 recomputed" in again.out  # from published records, without the data
    assert files_in(tmp_path / "copy/shapes") == files_in(boards / "shapes")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"train__weight_decay": 0.25}, "added 2 of flamingo type-I; removed 3 of ce type-I, 3 of crm type-I, 3 of "),
        ({"method__code": "1" * 64}, "added 2 of flamingo type-I; removed 3 of flamingo type-I"),
    ],
    ids=["other settings", "other code"],
)
def test_an_update_says_which_runs_came_and_went(change, line, copied, put, tmp_path, tamperings):
    put(copied("all", "ce", "crm", "flamingo"))
    lines = put(respecified(copied("new", "flamingo", seeds=2), tamperings, **change)).lines
    assert lines[0].startswith(line)
    (report,) = verify([tmp_path / "boards/shapes"], tmp_path / "no-data")
    assert report.num_rejected == 0 and rows_of(tmp_path / "boards")["flamingo"]["n"] == 2


def test_an_update_leaves_a_publication_of_another_protocol_as_it_is(copied, put, tamperings, tmp_path):
    put(copied("one", "ce"))
    before = files_in(tmp_path / "boards")
    for number, (key, value) in enumerate({"protocol": "authors", "dataset__hierarchy": "f" * 64}.items()):
        new = respecified(copied(f"other {number}", "ce"), tamperings, **{key: value})
        with pytest.raises(UserError, match=r"is of protocol paper|its tree f{12} is not that of shapes"):
            put(new)
    assert files_in(tmp_path / "boards") == before


KILLED = """
import os, sys
from pathlib import Path
from hierbench.config.options import RunSelection
from hierbench.sharing import publication_folder
from hierbench.sharing.publication import publish
runs, folder, data, at = sys.argv[1:]
sys.dont_write_bytecode = True
steps, limit = [0], int(at)
def step(event, arguments):
    if event in ("os.rename", "os.link", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree"):
        if "/cache" in repr(arguments):  # of findings, which the first process makes and the others find
            return
        steps[0] += 1
        if event == "os.rename" and str(arguments[0]) == folder:
            print(steps[0])
        if steps[0] == limit:
            os.kill(os.getpid(), 9)
sys.addaudithook(step)
publish("shapes", Path(folder), RunSelection(Path(runs), Path(data)), draw=False)
"""


def test_a_kill_leaves_the_old_or_the_new(copied, put, tmp_path, cli, data_dir):
    """At steps before, between and after the two renames; what is between them is put back by the next publication."""
    put(copied("one", "ce", "crm"))
    boards, kept, new = tmp_path / "boards", tmp_path / "kept", copied("two", "flamingo")
    shutil.copytree(boards, kept)
    old = files_in(boards)

    def run(at):
        if boards.exists():
            shutil.rmtree(boards)
        shutil.copytree(kept, boards)
        started = cli.start(tmp_path, *map(str, (new, boards, data_dir, at)), python=("-c", KILLED))
        return started.finish()

    decisive = int(run(0).ok().out)
    names, seen = set(files_in(boards)), []
    steps = [decisive // 2, decisive, decisive + 1, decisive + 2]
    for at in steps:
        assert run(at).code == -signal.SIGKILL
        seen.append(files_in(boards) if boards.exists() else "gone")  # only between two renames
        with pytest.raises(KeyError), publication_folder.replaced(boards, "shapes"):
            raise KeyError  # what the next publication finds
        now = files_in(boards)
        assert now == old or set(now) == names
        assert sorted(path.name for path in tmp_path.iterdir() if "boards" in path.name) == ["boards"]
    states = ["gone" if content == "gone" else "old" if content == old else "new" for content in seen]
    assert states == ["old", "old", "gone", "new"]


def test_one_at_a_time_and_nothing_is_followed(copied, put, tmp_path, monkeypatch):
    runs = copied("one", "ce")
    (tmp_path / "outside").mkdir()
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards/shapes").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="is a symbolic link"):
        put(runs)
    (tmp_path / "boards/shapes").unlink()
    with publication_folder.replaced(tmp_path / "boards", "shapes"):
        assert publication_folder.Lock(tmp_path, "boards.publish").holder() is not None
    monkeypatch.chdir(tmp_path / "boards")
    with pytest.raises(UserError, match="give a folder within it"):
        put(runs)
    assert not list((tmp_path / "outside").iterdir()) and not list((tmp_path / "boards").iterdir())


def test_a_tree_that_is_not_shipped_comes_with_the_records(made_runs, tmp_path, tamperings):
    """From runs and from published records; a tree with another digest is not believed."""
    prepared = made_runs.prepare(tmp_path / "data", per_class=40, name="animals")
    targets = prepared.arrays("test")[1]
    made_runs.store_run(
        Store(tmp_path / "runs"), prepared, "ce", "type-I", made_runs.random_scores(targets, 6, 0), targets
    )
    respecified(tmp_path / "runs", tamperings, dataset__name="animals")
    publish("animals", tmp_path / "first", RunSelection(tmp_path / "runs", tmp_path / "data"), draw=False)
    publish("animals", tmp_path / "second", RunSelection(tmp_path / "first/animals", tmp_path / "none"), draw=False)
    for folder in ("first", "second"):
        (report,) = verify([tmp_path / folder], tmp_path / "none")
        assert report.counts()["recomputed"] == 1 and report.num_rejected == 0
    tree = loose(tmp_path / "second") / "animals/tree.json"
    for content in (tree.read_text().replace("cod", "ray"), "[]", '{"paths": [["a"], [1]]}', "no JSON"):
        tree.write_text(content)
        (report,) = verify([tmp_path / "second"], tmp_path / "none")
        assert report.counts()["claimed"] == 1 and "nothing is computed" in report.runs[0].notes[0]


def test_an_update_says_which_columns_it_drops_and_compares_those_it_keeps(copied, put, tmp_path):
    put(copied("first", "ce"), columns=requested_columns("+ece"))
    (tmp_path / "boards/shapes.md").write_text("| Top-1 |")  # of no account: the JSON names the columns
    kept = put(copied("more", "flamingo"))
    assert not any("no longer" in line for line in kept.notes)
    assert all(len(row["metrics"]["ece"]["values"]) == 3 for row in rows_of(tmp_path / "boards").values())
    dropped = put(tmp_path / "more", columns=requested_columns("top1"))
    assert any("no longer has the columns" in line and "ece" in line for line in dropped.notes)
