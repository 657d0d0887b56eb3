"""Mistakes in a command: one line, exit code 2, and nothing is written. The wording of the lines is pinned here."""

import shlex
import shutil

import pytest

from tests.support.short import SMALL

SHAPES = "--dataset shapes"
NUMBERS, PAPER = "--difference 1 --deviation 1", "--dataset cifar100 --numbers paper"
PAIR = "ce:type-I:0 flamingo:type-I:0"
FROZEN = f"run --methods ce {shlex.join(SMALL)} {SHAPES} --set model.frozen=true --set model.weights=random"

MESSAGES = {  # of ce, crm and flamingo on type I, seeds 0 to 2
    "run": "Missing option '--dataset'",
    f"run {SHAPES} --methods haframes": "unknown method 'haframes'; did you mean 'haframe'",
    f"run {SHAPES} --methods {'x' * 5000}": "known: all, ",
    f"run {SHAPES} --methods ./nowhere.py": "no method file nowhere.py",
    f"run {SHAPES} --methods crm --set methods.haframe.gama=1": "haframe does not take part, only crm, ce; name",
    f"run {SHAPES} --methods ce --set tune={{grid={{hxe={{alpha=[1]}}}}}}": "hxe does not take part, only ce; name it",
    f"run {SHAPES} --seeds 0": "--seeds must be at least 1",
    f"run {SHAPES} --seeds two": "Invalid value for '--seeds'",
    f"run {SHAPES} --seeds 20231123": "at most 1,000, which begin at 0; a single seed cannot be chosen",
    f"run {SHAPES} --set model.backbone=wrn11-1": "depth 6 n + 4",
    f"run {SHAPES} --device mps": "--device mps: this machine",
    f"run {SHAPES} --plan-only --dry-run": "--dry-run writes nothing and --plan-only writes the plan",
    f"run {SHAPES} --plan-only --jobs 2": "--plan-only starts nothing",
    f"run {SHAPES} --plan-only --executor ray": "--plan-only starts nothing",
    f"run {SHAPES} --executor ray --address ray://head:10001": "HOST:PORT of a cluster's head node",
    f"run {SHAPES} --executor ray --device mps": "cpu or cuda",
    f"run {SHAPES} --executor ray --jobs 2": "--jobs is for this machine",
    f"run {SHAPES} --executor slurm": "Invalid value for '--executor'",
    f"run {SHAPES} --address 127.0.0.1:1": "--address is for --executor ray",
    f"run {SHAPES} --tuned-file nowhere.toml": "nothing in nowhere.toml was tuned",
    f"run {SHAPES} --tuned --runs none": "nothing in none/tuned/shapes.toml was tuned",
    f"{FROZEN} --set model.views=3 --set augment.pad=0": "model.views > 2 are random crops",
    f"{FROZEN} --set train.layer_decay=0.5": "train.layer_decay needs a trained backbone",
    f"{FROZEN} --set model.frozen=false --set model.weights=none --set model.views=2": "views needs frozen = true",
    f"{FROZEN} --set model.weights=none": "is frozen and has no weights: set model.weights",
    f"{FROZEN} --set model.frozen=false": "weights = random is for frozen = true",
    "ablate --dataset all": "--dataset all is for --numbers paper",
    f"ablate {SHAPES} --numbers paper": "unknown ablation of the paper",
    "ablate --dataset fgvc --numbers paper --seeds 3": "options of training",
    f"ablate {SHAPES} --set methods.haframe.alpha=0": "only between 0 and 1",
    f"ablate {SHAPES} --set methods.haframe.alpha=1": "only between 0 and 1",
    f"ablate {SHAPES} --set methods.haframe.alpha=2": "hyperparameters of haframe",
    f"ablate {SHAPES} --output nowhere/table.md": "--output nowhere/table.md: no such folder",
    "collapse --dataset shape": "did you mean 'shapes'",
    f"collapse {SHAPES} --every 0": "'--every'",
    f"collapse {SHAPES} --seeds 0": "'--seeds'",
    f"collapse {SHAPES} --jobs 0": "'--jobs'",
    f"collapse {SHAPES} --set collapse.deviation=signed": "collapse.deviation = 'signed'",
    f"collapse {SHAPES} --set collapse.form=norm": "unknown key 'collapse.form'",
    f"collapse {SHAPES} --set methods.hxe.alpha=0.1": "hxe does not take part, only haframe, ce",
    f"collapse {SHAPES} --weights w.pth": "--weights: no file w.pth",
    f"tune {SHAPES} --method ce": "ce has no hyperparameters to tune",
    f"tune {SHAPES} --methods all,ce": "ce has no hyperparameters to tune",
    f"tune {SHAPES} --method crm": "crm has no hyperparameters to tune; it re-ranks ce",
    f"tune {SHAPES} --methods all --set tune.grid.crm.lr.classifier=[1]": "crm has no hyperparameters to tune",
    f"tune {SHAPES} --method hafram": "did you mean 'haframe'",
    f"tune {SHAPES} --trials 3": "--trials is for --sampler tpe",
    f"tune {SHAPES} --sampler tpe --executor ray": "--sampler tpe runs on this machine only",
    f"tune {SHAPES} --executor ray --jobs 2": "--jobs is for this machine",
    f"tune {SHAPES} --types type-I": "cannot use type-I",
    f"separate ce ce {SHAPES} --types type-I --max-seeds 9": "two rows are needed, got ce twice",
    f"separate ce crn {SHAPES} --types type-I --max-seeds 9": "did you mean 'crm'",
    f"separate ce:type-3 crm {SHAPES} --types type-I --max-seeds 9": "did you mean 'type-I'",
    f"separate ce crm {SHAPES} --types type-I --max-seeds 2": "looks go from --seeds",
    f"separate ce crm {SHAPES} --types type-I --max-seeds 4 --seeds 5": "got 5 to 4",
    f"separate ce crm {SHAPES} --types type-I --max-seeds 9 --metric ece": "unknown metric",
    f"separate ce crm {SHAPES} --types type-I,type-II --max-seeds 9": "ce: name one row, METHOD:TYPE",
    f"separate ce,crm haframe {SHAPES} --types type-I --max-seeds 9": "ce,crm: name one row",
    "leaderboard --dataset fgvc": "hierbench run",
    "leaderboard --dataset shape": "unknown recipe 'shape'; did you mean 'shapes'? known: cifar100",
    "leaderboard --dataset nosuch --numbers both": "unknown table of the paper for dataset 'nosuch'",
    f"leaderboard {SHAPES} --metrics hf_macr": "unknown metric 'hf_macr'; did you mean 'hf_macro'?",
    f"leaderboard {SHAPES} --metrics level_accuracy@4": "the tree has levels 1 to 3",
    f"leaderboard {SHAPES} --metrics hierdist@49": "the tree has 48 classes",
    f"leaderboard {SHAPES} --metrics ece,+fpa": "put + before all names",
    f"leaderboard {SHAPES} --metrics ''": "give names separated by commas",
    f"leaderboard {SHAPES} --metrics ece --numbers both": "other metrics are only for runs",
    f"leaderboard {SHAPES} --publish boards --format csv": "--format is for ",
    f"leaderboard {SHAPES} --publish boards --output x.md": "--output is for ",
    "power ce crm": "give --dataset",
    f"power ce {SHAPES}": "two rows",
    "power --difference 1": "--difference and --deviation",
    f"power {NUMBERS} {SHAPES}": "leave out --dataset",
    "power --difference nan --deviation 1": "--difference nan",
    "power --difference 1 --deviation 0": "--deviation 0",
    f"power {NUMBERS} --power nan": "--power nan",
    f"power {NUMBERS} --level 0": "--level 0",
    f"power crm cee {PAPER}": "unknown row 'cee'",
    f"power ce ce {PAPER}": "nothing to compare with ce",
    f"power crm ce {PAPER} --metric topp": "topp",
    f"power ce crm {PAPER} --metric ece": "other metrics",
    f"power ce crm {PAPER} --protocol paper": "a protocol",
    f"power ce crm {PAPER} --unpaired": "--unpaired is for ",
    f"plot severty {SHAPES}": "unknown plot 'severty'; did you mean 'severity'?",
    "plot severity --dataset all": "--dataset all is for similarity",
    "plot similarity --dataset inat19": "hierbench data prepare inat19",
    "plot curves --dataset fgvc": "no runs of fgvc",
    f"plot curves {SHAPES} --protocol authors": "no runs of shapes under protocol authors",
    f"plot curves {SHAPES} --numbers paper": "--numbers paper is for tradeoff",
    "plot tradeoff --dataset fgvc --numbers paper --protocol paper": "is only for runs",
    f"plot curves {SHAPES} --seed 1": "--seed is for confusion",
    f"plot confusion {SHAPES}": "shapes matches 3 runs: ce type-I seed 0 (",
    f"plot confusion {SHAPES} --method flaming": "there are ce:type-I:0, ce:type-I:1, ",
    f"plot confusion {SHAPES} --run x": "no run in runs has an id that begins with 'x'",
    f"plot confusion {SHAPES} --run x --seed 1": "leave out --seed",
    f"plot curves {SHAPES} --output a.jpg": "the suffix must be one of .svg, .pdf, .png",
    f"plot curves {SHAPES} --output nowhere/a.svg": "there is no folder nowhere",
    f"mistakes {SHAPES} ce": "name two runs",
    f"mistakes {SHAPES} ce flamingo crm": "name two runs",
    f"mistakes {SHAPES} ce:type-I:0 flaming": "unknown run 'flaming'; did you mean 'flamingo'",
    f"mistakes {SHAPES} ce:type-I:0 hxe": "train it with: hierbench run --methods hxe --dataset shapes",
    f"mistakes {SHAPES} ce:type-I:0 hxe:type-I": "hierbench run --methods hxe --types type-I --dataset shapes",
    f"mistakes {SHAPES} ce:type-I:0 hxe:type-I:2": "no finished run of hxe type-I in",
    f"mistakes {SHAPES} ce:type-I:0 flamingo:type-3": "unknown type 'type-3'",
    f"mistakes {SHAPES} ce:type-I:0 flamingo:type-I:one": "METHOD[:TYPE[:SEED]]",
    f"mistakes {SHAPES} ce:type-I:0 flamingo:type-I:0:1": "METHOD[:TYPE[:SEED]]",
    f"mistakes {SHAPES} ce:type-I:0 flamingo:type-II": "there are flamingo:type-I:0",
    f"mistakes {SHAPES} ce:type-I:0 ce:type-I:4": "seed 4 in the newest table of shapes; there are ce:type-I:0",
    f"mistakes {SHAPES} ce:type-I:0 0123456789": "no run in",
    f"mistakes {SHAPES} ce:type-I:0 ce:type-I:0": "A and B are the same run",
    f"mistakes {SHAPES} {PAIR} --protocol authors": "no runs of shapes under protocol authors",
    f"mistakes --dataset shape {PAIR}": "unknown recipe 'shape'",
    f"mistakes {SHAPES} {PAIR} --limit -1": "--limit",
    f"mistakes {SHAPES} {PAIR} --names nowhere.txt": "No such file",
    f"mistakes {SHAPES} {PAIR} --output nowhere/page.html": "--output nowhere/page.html: No such file",
    "data verify cifar100": "cifar100 is not prepared",
    "methods new MyMethod": "lower-case",
    "methods new crm": "method crm already exists",
    "verify nowhere": "no folder nowhere",
    "verify data": "has no runs",
    "verify runs --device cpu": "--device is for ",
    "verify runs --weights w.pth": "--weights is for ",
    "reproduce runs ce --device cpu": "--device is for ",
    "reproduce runs ce --runs again": "--runs is for ",
    "reproduce runs ce --jobs 2": "--jobs is for ",
    "ruin": "No such command 'ruin'",
}


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory, data_dir):
    folder = tmp_path_factory.mktemp("messages")
    shutil.copytree(data_dir, folder / "data")
    shutil.copytree(trained, folder / "runs")
    return folder


@pytest.mark.parametrize(("command", "message"), MESSAGES.items(), ids=lambda text: text[:70])
def test_a_mistake_is_one_line_and_writes_nothing(cli, folder, command, message):
    before = sorted(folder.rglob("*"))
    cli(folder, *shlex.split(command)).one_line(message)
    assert sorted(folder.rglob("*")) == before
