"""Requests to a runs folder: recorded by commands, read from any folder, and used by tables."""

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hierbench.config.options import Options, RunSelection
from hierbench.execution.jobs import make_jobs
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.request_choice import choose
from hierbench.runs import requests
from hierbench.runs.record_reader import read_records
from hierbench.runs.requests import (
    extend_request,
    read_requests,
    record_request,
    request_options,
)
from hierbench.runs.state import State
from hierbench.runs.store import Store
from hierbench.sharing.bundle import publish_requests
from hierbench.sharing.publication import publish
from hierbench.utils.errors import UserError
from hierbench.utils.text import without_paths
from tests.support.publications import loose
from tests.support.short import SMALL

A, B, C, D = (letter * 64 for letter in "abcd")


def ask(folder, *ids, kind="comparison", **options):
    return record_request(folder, kind, "shapes", options, ids)


def lines(folder):
    return (folder / "requests.jsonl").read_text().splitlines()


def test_a_request_repeated_is_one_short_line(tmp_path):
    first, other = ask(tmp_path, A, B, methods="ce"), ask(tmp_path, C, methods="crm")
    assert read_requests(tmp_path) == (first, other)
    assert set(json.loads(lines(tmp_path)[0])) == {
        "request", "time", "version", "kind", "dataset", "options", "ids", "budget"
    }  # fmt: skip
    assert ask(tmp_path, A, B, methods="ce") == first
    assert json.loads(lines(tmp_path)[2]).keys() == {"request", "time"} and read_requests(tmp_path) == (other, first)
    extend_request(tmp_path, other, [C, D], {"looks": {"3": 1}})
    extend_request(tmp_path, other, [D], {"looks": {"3": 1, "4": 2}})  # of a command that does not know of the other
    extend_request(tmp_path, other, [D], {"looks": {"4": 2}})  # there is nothing new
    assert json.loads(lines(tmp_path)[3])["ids"] == [D] and len(lines(tmp_path)) == 5
    requests = read_requests(tmp_path)
    assert [request.id for request in requests] == [other.id, first.id]  # what was learned is nothing that was asked
    assert requests[0].ids == (C, D) and requests[0].budget == {"looks": {"3": 1, "4": 2}}
    assert ask(tmp_path, A, B, methods="ce", seeds=2).id != first.id != ask(tmp_path, A, methods="ce").id


def test_two_commands_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path; from hierbench.runs.requests import record_request\n"
        "for n in range(20):\n"
        "    record_request(Path('.'), 'comparison', 'shapes', {'seeds': n, 'by': sys.argv[1]}, ['a' * 64] * 500)\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, name], cwd=tmp_path) for name in "ab"]
    assert [process.wait() for process in started] == [0, 0]
    assert len(read_requests(tmp_path)) == len(lines(tmp_path)) == 40
    first = [request for request in read_requests(tmp_path) if request.options["by"] == "a"]
    assert [request.options["seeds"] for request in first] == list(range(20))
    assert os.listdir(tmp_path) == ["requests.jsonl"]


def test_a_kill_in_the_middle_of_a_line_and_lines_of_others(tmp_path):
    file, first = tmp_path / "requests.jsonl", ask(tmp_path, A)
    content = file.read_bytes()
    for torn in (content[: len(content) // 2], "ä".encode()[:1], b"[1]\n{}\n", b'{"request": "x", "kind": 1}\n\0'):
        file.write_bytes(content + torn)
        assert read_requests(tmp_path) == (first,)
        other = ask(tmp_path, B)
        assert read_requests(tmp_path) == (first, other)
    file.write_bytes(content.rstrip())  # only its end is missing
    assert read_requests(tmp_path) == (first,) and ask(tmp_path, B) == read_requests(tmp_path)[1]
    file.unlink()
    os.symlink(tmp_path / "elsewhere", file)
    for use in (lambda: read_requests(tmp_path), lambda: ask(tmp_path, A)):
        with pytest.raises(UserError, match="is a symbolic link"):
            use()


def test_a_file_of_another_user_in_a_shared_folder_is_replaced_by_a_copy(tmp_path, monkeypatch):
    first, file = ask(tmp_path, A), tmp_path / "requests.jsonl"
    kept = file.stat().st_ino
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    other = ask(tmp_path, B)
    assert read_requests(tmp_path) == (first, other) and file.stat().st_ino != kept


def test_options_name_no_folder_of_this_machine():
    options = Options(
        "/home/me/birds.toml",
        methods="ce,./mine/twin.py, crm",
        overrides=["model.backbone=timm:org/net", 'data.tree="/home/me/a tree.csv"', "x=[~/a/b,../c/d.toml]"],
        weights=Path("/data/w.pt"),
    )
    assert request_options(options, 3, tuned={"haframe:type-II": {"gamma": 2.0}}) == {
        "dataset": "birds.toml",
        "methods": "ce,twin.py,crm",
        "types": "type-I,type-II",
        "seeds": 3,
        "overrides": ["model.backbone=timm:org/net", 'data.tree="a tree.csv"', "x=[b,d.toml]"],
        "protocol": "paper",
        "weights": "w.pt",
        "tuned": {"haframe:type-II": {"gamma": 2.0}},
    }
    assert without_paths({"a": ["/x/y", 1, None]}) == {"a": ["y", 1, None]}


@pytest.fixture
def planned(shapes, tmp_path):
    """Plans jobs of `shapes` in a folder; returns their specs by id."""
    from hierbench.api.registry import find_method
    from hierbench.config.recipe import load_recipe

    def plan(methods="ce", *overrides, folder=tmp_path, seeds=1, started=None):
        recipe = load_recipe("shapes", ["train.precision=float32", *overrides])
        jobs = make_jobs(recipe, shapes, [find_method(name) for name in methods.split(",")], ["type-I"], seeds)
        for job in jobs:
            run = Store(folder).run(job.id)
            run.plan(job.spec.content())
            if started is not None:
                run.set_status("planned", started=started)
        return {job.id: job.spec for job in jobs}

    return plan


def epochs(board):
    return int(board.settings.partition(" epochs")[0].rpartition(" ")[2])


def test_runs_that_no_request_names_are_ordered_by_their_start(planned, tmp_path):
    """Also where their files have other times; what was asked for comes after them, wherever the clock stands."""
    planned("ce", "train.epochs=3", started=300.0)
    planned_ids = [*planned("ce", "train.epochs=4", started=1.0)]
    (last,) = planned("ce", "train.epochs=5", started=400.0)
    planned("ce", "train.epochs=2", started=200.0)
    os.utime(tmp_path / last / "spec.json", (0, 0))
    assert epochs(Board.of("shapes", read_records(tmp_path))) == 5
    ask(tmp_path, *planned_ids)
    assert epochs(Board.of("shapes", read_records(tmp_path))) == 4
    (tmp_path / "requests.jsonl").unlink()
    assert epochs(Board.of("shapes", read_records(tmp_path))) == 5


def test_the_last_request_counts_although_the_clock_was_set_back(planned, tmp_path, monkeypatch):
    for ahead, number in ((0, 2), (-86400, 3)):
        monkeypatch.setattr(time, "gmtime", lambda moved=ahead: time.localtime(1e9 + moved))
        ask(tmp_path, *planned("ce", f"train.epochs={number}"))
    assert read_requests(tmp_path)[0].time > read_requests(tmp_path)[1].time
    assert epochs(Board.of("shapes", read_records(tmp_path))) == 3


def test_folders_merged_by_hand(planned, tmp_path):
    """The requests of both, one after the other, or of one alone: all runs are there, the last asked for is shown."""
    for name, number in (("one", 2), ("two", 3)):
        folder = tmp_path / name
        ask(folder, *planned("ce", f"train.epochs={number}", folder=folder, started=100.0 * number), methods="ce")
    both = tmp_path / "both"
    for name in ("two", "one"):
        shutil.copytree(tmp_path / name, both, dirs_exist_ok=True)
    assert [request.options for request in read_requests(both)] == [{"methods": "ce"}]
    board = Board.of("shapes", read_records(both))
    assert epochs(board) == 2  # no request names the others, which are older for that
    text = "".join((tmp_path / name / "requests.jsonl").read_text() for name in ("one", "two", "one", "two"))
    (both / "requests.jsonl").write_text(text)
    assert epochs(Board.of("shapes", read_records(both))) == 3 and len(read_requests(both)) == 2


def test_the_runs_of_a_table(planned, tmp_path):
    """A pure function of runs and requests: settings of the last, rows of all, or of the request that is named."""
    specs = [planned("ce", f"train.epochs={epochs}") for epochs in (2, 3, 4)]
    two_epochs, three_epochs, four_epochs = (next(iter(spec_by_id)) for spec_by_id in specs)
    runs = {run_id: spec for spec_by_id in specs for run_id, spec in spec_by_id.items()}
    (other_method,) = (run_id for run_id in planned("soft_labels", "train.epochs=2") if run_id not in runs)
    runs |= planned("soft_labels", "train.epochs=2")

    def chosen(*requests, prefix=None, unfinished=()):
        started = {three_epochs: {"started": 1.0}, four_epochs: {"started": 2.0}}
        records = [
            replace(
                record,
                state=State.UNFINISHED if record.id in unfinished else State.RECORDED,
                status=started.get(record.id, {}),
            )
            for record in read_records(tmp_path)
        ]
        rows, _, left_out = choose(records, requests, prefix)
        return tuple(record.id for record in rows), left_out

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hierbench.runs.requests.append_line", lambda *_: None)
        first, second, last = (ask(Path("."), run_id) for run_id in (two_epochs, three_epochs, other_method))
    assert chosen(first, second, last)[0] == (two_epochs, other_method)  # one more method adds a row
    assert chosen(first, last, second)[0] == (three_epochs,)
    assert chosen(first, last, second, unfinished=[three_epochs])[0] == (two_epochs, other_method)
    note = chosen(first, last, second)[1]
    assert note.startswith("3 finished runs with other settings are not in this table: --request ")
    ways = note.split("--request ")[1:]
    comparison = runs[four_epochs].comparison[:6]
    assert ways[0].startswith(last.id[:6]) and ways[1].removesuffix(" shows them") == comparison
    assert chosen(first, last, second, prefix=first.id[:4])[0] == (other_method, two_epochs)
    assert chosen(first, last, second, prefix=comparison)[0] == (four_epochs,)
    for prefix in ("zzz", ""):
        with pytest.raises(UserError, match=rf"here .* there are {second.id[:6]} \(20"):
            chosen(first, last, second, prefix=prefix)


def test_rows_of_one_method_are_named_by_their_differing_hyperparameters(planned, tmp_path, cli):
    """In the list of runs by what differs alone; in a table the row as it is in the recipe is not."""
    planned("soft_labels")
    planned("soft_labels,hxe", "methods.soft_labels.beta=9.0")
    board = Board.of("shapes", read_records(tmp_path))
    assert {row.title for row in board.rows} == {"soft_labels", "soft_labels (beta=9)", "hxe"}
    rows = json.loads(cli(tmp_path, "runs", "--runs", tmp_path, "--json").ok().out)["rows"]
    assert {row["Method"] for row in rows} == {"soft_labels (beta=9.0)", "soft_labels (beta=10.0)", "hxe"}


def test_a_published_folder_has_the_requests_of_its_runs(tmp_path):
    runs, other, target = (tmp_path / name for name in ("runs", "other", "target"))
    for folder in (runs, other, target):
        folder.mkdir()
    first = ask(runs, A, B, overrides=["a=1"])
    ask(runs, C)
    forged = requests.with_id(**dict(first) | {"options": {"weights": "/home/me/w.pt"}})  # of others
    content = forged.model_dump(mode="json", by_alias=True)
    (runs / "requests.jsonl").write_text("\n".join([json.dumps(content), *lines(runs)[1:]]))
    publish_requests(target, runs, "shapes", [B, D])
    (published,) = read_requests(target)
    assert (published.id, published.ids, published.options) == (published.digest, (B,), {"weights": "w.pt"})
    publish_requests(target, other, "shapes", [D, A], later=True)
    assert [request.ids for request in read_requests(target)] == [(B,), (D, A)]


@pytest.fixture(scope="module")
def hidden(cli, trained, data_dir, tmp_path_factory):
    """A folder in which a careless command has hidden a stranger's table."""
    folder = tmp_path_factory.mktemp("hidden")
    shutil.copytree(trained, folder / "runs")
    (folder / "data").symlink_to(data_dir)
    run = ("run", "--methods", "ce", "--dataset", "shapes", "--types", "type-I", "--seeds", "1", *SMALL)
    cli(folder, *run).ok()
    return folder


def rows(done):
    return {row["method"]: row["n"] for row in json.loads(done.ok().out)["rows"]}


@pytest.fixture
def selection(hidden):
    """The options that choose the comparison that the careless command has hidden."""
    first, _ = read_requests(hidden / "runs")
    return ("--dataset", "shapes", "--request", first.id[:6])


def test_a_table_names_the_request_of_hidden_runs(cli, hidden):
    first, second = (request.id for request in read_requests(hidden / "runs"))
    on = ("leaderboard", "--dataset", "shapes")
    shown = cli(hidden, *on).ok().out
    assert f"9 finished runs with other settings are not in this table: --request {first[:6]}" in shown
    other = cli(hidden, *on, "--request", first[:6]).ok().out
    assert f"1 finished runs with other settings are not in this table: --request {second[:6]}" in other


def test_the_table_that_a_careless_command_hid_comes_back(cli, hidden, selection):
    table = ("leaderboard", "--format", "json")
    assert rows(cli(hidden, *table, "--dataset", "shapes")) == {"ce": 1}
    assert rows(cli(hidden, *table, *selection)) == {"ce": 3, "crm": 3, "flamingo": 3}


def test_other_commands_take_the_request_too(cli, hidden, selection, tmp_path):
    assert "crm" in cli(hidden, "compare", "ce", *selection).ok().out
    assert "--seeds 3" in cli(hidden, "reproduce", "runs", "crm:type-I", *selection).ok().out
    cli(hidden, "plot", "tradeoff", *selection, "--output", tmp_path / "tradeoff.svg").ok()
    report = ("report", "--rows", "ce:type-I,crm:type-I", "--output", tmp_path / "page.html")
    cli(hidden, *report, *selection).ok()


def test_a_publication_has_the_chosen_request_alone(hidden, tmp_path):
    first, _ = read_requests(hidden / "runs")
    place = RunSelection(hidden / "runs", hidden / "data", request=first.id[:6])
    publish("shapes", tmp_path / "boards", place, draw=False)
    (published,) = read_requests(loose(tmp_path / "boards") / "shapes")
    assert published.id == first.id and str(hidden) not in (tmp_path / "boards/shapes/requests.jsonl").read_text()
    assert len(json.loads((tmp_path / "boards/shapes.json").read_text())["rows"]) == 3


@pytest.mark.parametrize("command", [("leaderboard",), ("publish", "--output", "no"), ("compare", "ce")])
def test_an_unknown_request_lists_those_there(cli, hidden, command):
    _, second = read_requests(hidden / "runs")
    line = cli(hidden, *command, "--dataset", "shapes", "--request", "f00").one_line("--request f00: no comparison")
    assert second.id[:6] in line and "ce,crm,flamingo, 3 seeds" in line


def test_reading_changes_nothing(cli, hidden, tmp_path):
    """Neither a folder of today nor one of before: it may be another's, or read-only."""
    for name in ("today", "before"):
        shutil.copytree(hidden / "runs", tmp_path / name, ignore=shutil.ignore_patterns("requests.jsonl"))
    shutil.copy(hidden / "runs/requests.jsonl", tmp_path / "today")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    for name in ("today", "before"):
        table = ("leaderboard", "--dataset", "shapes", "--format", "json", "--runs", name)
        assert rows(cli(tmp_path, *table)) == {"ce": 1}
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
