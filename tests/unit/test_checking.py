"""Every command that shows runs leaves out what verification rejects, and names it."""

import json
import shutil
from pathlib import Path

import pytest

from hierbench.runs.store import Store
from tests.tamperings import Folder, edit, reseal

ON = ("--dataset", "shapes")


@pytest.fixture
def forged(trained, data_dir, tmp_path):
    """A folder whose run of flamingo with seed 0 has another top-1 accuracy, sealed again."""
    shutil.copytree(trained, tmp_path / "runs")
    run = Folder(tmp_path / "runs").run("flamingo", 0)
    edit(run, "metrics.json", test__top1=99.2)
    reseal(run)
    (tmp_path / "data").symlink_to(data_dir)
    return tmp_path, run.folder.name


COMMANDS = {
    "compare": ("compare", "ce", *ON),
    "ties": ("compare", "--ties", "top1", *ON),
    "power": ("power", "ce", "flamingo", "--metric", "top1", *ON),
    "reproduce": ("reproduce", "runs", "flamingo"),
    "tradeoff": ("plot", "tradeoff", *ON),
    "severity": ("plot", "severity", *ON),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_rejected_run_is_named_and_not_counted(cli, forged, name):
    folder, run_id = forged
    done = cli(folder, *COMMANDS[name]).ok()
    assert f"run {run_id[:12]} (flamingo type-I seed 0) is rejected and not counted: " in done.err
    assert "99.2" not in done.out
    if name in ("tradeoff", "severity"):
        assert "flamingo" in done.out.lower() and "2 of 3 runs are finished" in done.out


def test_a_rejected_run_has_no_confusion_matrix_and_a_board_that_does_not_exist_is_no_unknown_row(cli, forged):
    folder, run_id = forged
    done = cli(folder, "plot", "confusion", *ON, "--run", run_id[:12])
    assert done.code == 2 and "is rejected: hierbench verify" in done.err.splitlines()[-1]
    for options in ((), ON):
        done = cli(folder, "compare", "runs", "nowhere", *options)
        assert done.code == 2 and "the folder nowhere does not exist" in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("option", "command"),
    [
        ("--format", "leaderboard --dataset shapes --publish boards --format csv"),
        ("--output", "leaderboard --dataset shapes --publish boards --output x.md"),
        ("--unpaired", "power ce crm --dataset cifar100 --numbers paper --unpaired"),
        ("--device", "verify runs --device cpu"),
        ("--device", "reproduce runs ce --device cpu"),
        ("--runs", "reproduce runs ce --runs again"),
        ("--jobs", "reproduce runs ce --jobs 2"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(cli, tmp_path, option, command):
    cli(tmp_path, *command.split()).one_line(f"{option} is for ")


def test_the_table_of_a_command_counts_no_rejected_run(cli, forged):
    folder, run_id = forged
    options = ("--types", "type-I", "--seeds", "3", "--jobs", "1", "--mlflow", "off", "--json")
    short = ("--set", "train.epochs=2", "--set", "train.batch_size=96")
    done = cli(folder, "run", "--methods", "ce,crm,flamingo", *ON, *options, *short).ok()
    rows = {row["method"]: row for row in json.loads(done.out)["rows"]}
    assert (rows["flamingo"]["n"], rows["flamingo"]["lacking"], rows["ce"]["n"]) == (2, [0], 3)
    (line,) = (line for line in done.err.splitlines() if run_id[:12] in line)
    assert line.endswith("remove its folder to train it again") and "99.2" not in done.out
    assert Store(folder / "runs").run(run_id).done  # it is left as it is


def test_commands_take_a_folder_of_published_tables(cli, tmp_path):
    place = ("--dataset", "tiny-imagenet-frozen", "--runs", Path(__file__).parents[2] / "leaderboard/published")
    assert "HAFrame" in cli(tmp_path, "compare", *place, "ce:type-II", "haframe:type-II").ok().out
    assert "model-index" in cli(tmp_path, "export", *place, "haframe:type-II").ok().out
    assert "cross-entropy" in cli(tmp_path, "power", *place, "ce:type-II", "haframe:type-II").ok().out
