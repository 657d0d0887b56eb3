"""Every command that shows runs leaves out those that do not count, and names them."""

import json
import shutil
from pathlib import Path

import pytest

from hierbench.api.registry import find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.jobs import make_jobs
from hierbench.leaderboard.board import Board
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from tests.support.tamperings import Folder, edit, reseal

ON = ("--dataset", "shapes")


@pytest.fixture
def damaged(trained, data_dir, tmp_path):
    """A folder in which the metrics of flamingo's seed 0 are not those that the run wrote."""
    shutil.copytree(trained, tmp_path / "runs")
    run = Folder(tmp_path / "runs").run("flamingo", 0)
    edit(run, "metrics.json", test__top1=99.2)
    (tmp_path / "data").symlink_to(data_dir)
    return tmp_path, run.folder.name


COMMANDS = {
    "compare": ("compare", "ce", *ON),
    "reproduce": ("reproduce", "runs", "flamingo"),
    "tradeoff": ("plot", "tradeoff", *ON),
    "severity": ("plot", "severity", *ON),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_run_is_reported_and_not_counted(cli, damaged, name):
    folder, run_id = damaged
    done = cli(folder, *COMMANDS[name]).ok()
    assert f"run {run_id[:12]} (flamingo type-I seed 0) is damaged (metrics.json) and not counted; " in done.err
    assert "99.2" not in done.out
    if name in ("tradeoff", "severity"):
        assert "flamingo" in done.out.lower() and "2 of 3 runs are finished" in done.out


def test_own_runs_are_believed_as_recorded(cli, damaged):
    """A run that is sealed again is another's forgery in one's own folder, which nothing here defends; verify tells."""
    folder, run_id = damaged
    reseal(Store(folder / "runs").run(run_id))
    done = cli(folder, "leaderboard", *ON, "--format", "json").ok()
    row = next(row for row in json.loads(done.out)["rows"] if row["method"] == "flamingo")
    assert (row["n"], row["verdict"]) == (3, "recorded") and "Evidence: 9 runs as recorded" in (
        cli(folder, "leaderboard", *ON).ok().out
    )
    assert "by its predictions" in cli(folder, "verify", "runs").out


def test_commands_take_a_folder_of_published_tables(cli, tmp_path):
    place = ("--dataset", "grocery-finetuned", "--runs", Path(__file__).parents[2] / "leaderboard/published")
    assert "HAFrame" in cli(tmp_path, "compare", *place, "ce:type-II", "haframe:type-II").ok().out


def test_re_ranked_runs_without_their_base_are_named(tmp_path, shapes):
    recipe = load_recipe("shapes")
    plan = make_jobs(recipe, shapes, [find_method("crm")], ["type-I"], 1)
    crm = next(job for job in plan if not job.trains)
    Store(tmp_path).run(crm.id).plan(crm.spec.content())
    with pytest.raises(UserError, match="have lost their bases"):
        Board.of("shapes", read_records(tmp_path))


def test_a_dataset_of_the_runs_folder_is_suggested(cli, tmp_path, shapes):
    (job,) = make_jobs(load_recipe("shapes"), shapes, [find_method("ce")], ["type-I"], 1)
    spec = job.spec.model_copy(update={"dataset": job.spec.dataset.model_copy(update={"name": "figs"})})
    Store(tmp_path / "runs").run(spec.id).plan(spec.content())
    for options in (["leaderboard"], ["compare", "ce"]):
        message = "unknown recipe 'fig'; did you mean 'figs'? known: butterflies, "
        cli(tmp_path, *options, "--dataset", "fig").one_line(message)
    assert "no runs of cifar100" in cli(tmp_path, "leaderboard", "--dataset", "cifar100").err
