"""Mistakes in a command: one line, exit code 2, and nothing is written. The wording of the lines is pinned here."""

import shlex

import pytest

from tests.support.short import SMALL

SHAPES = "--dataset shapes"
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
    "ablate --dataset shape": "did you mean 'shapes'",
    f"tune {SHAPES} --method ce": "ce has no hyperparameters to tune",
    f"tune {SHAPES} --method crm": "crm has no hyperparameters to tune; it re-ranks ce",
    f"tune {SHAPES} --methods all --set tune.grid.crm.lr.classifier=[1]": "crm has no hyperparameters to tune",
    f"tune {SHAPES} --method hafram": "did you mean 'haframe'",
    f"tune {SHAPES} --trials 3": "--trials is for --sampler random and tpe",
    f"tune {SHAPES} --types type-I": "cannot use type-I",
    "leaderboard --dataset fgvc": "hierbench run",
    "leaderboard --dataset shape": "unknown recipe 'shape'; did you mean 'shapes'? known: butterflies",
    "leaderboard --dataset nosuch --numbers both": "unknown table of the paper for dataset 'nosuch'",
    f"leaderboard {SHAPES} --metrics hf_macr": "unknown metric 'hf_macr'; did you mean 'hf_macro'?",
    f"leaderboard {SHAPES} --metrics level_accuracy@4": "the tree has levels 1 to 3",
    f"leaderboard {SHAPES} --metrics hierdist@49": "the tree has 48 classes",
    f"leaderboard {SHAPES} --metrics ece,+fpa": "put + before all names",
    f"leaderboard {SHAPES} --metrics ''": "give names separated by commas",
    f"leaderboard {SHAPES} --metrics ece --numbers both": "other metrics are only for runs",
    f"plot severty {SHAPES}": "unknown plot 'severty'; did you mean 'severity'?",
    "plot curves --dataset fgvc": "no runs of fgvc",
    f"plot verdict {SHAPES}": "unknown plot 'verdict'",
    f"plot curves {SHAPES} --output a.jpg": "the suffix must be one of .svg, .pdf, .png",
    f"plot curves {SHAPES} --output nowhere/a.svg": "there is no folder nowhere",
    f"report {SHAPES} --rows ce,flamingo,crm": "rows are one or two",
    f"report {SHAPES} --rows ce,flaming": "unknown row 'flaming'",
    f"report {SHAPES} --rows ce,ce": "are the same row",
    f"report {SHAPES}": "give files of predictions with --tree, or --dataset with --rows",
    f"report {SHAPES} --rows ce --tree cifar100": "--tree is for files of predictions",
    f"report {SHAPES} --rows ce --order tree": "--order is for files of predictions",
    "report --dataset shape --rows ce": "unknown recipe 'shape'",
    f"report {SHAPES} --rows ce --output nowhere/page.html": "nowhere/page.html: no such folder",
    "report none.npz --tree cifar100": "none.npz cannot be read: No such file",
    "report none.npz": "give --tree",
    "report none.npz --tree cifar100 --against-validation v.npz": "need its test files",
    "report none.npz --tree cifar100 --train-counts none.csv": "none.csv",
    "data verify cifar100": "cifar100 is not prepared",
    "data prepare ./birds.toml": "no file ./birds.toml; hierbench data new writes one",
    "data new birds --images images --tree cifar100": "no folder of images",
    "methods new MyMethod": "lower-case",
    "methods new crm": "method crm already exists",
    "verify nowhere": "no folder nowhere",
    "verify data": "has no runs",
    "verify runs --weights w.pth": "--weights is for ",
    "reproduce runs ce --runs again": "--runs is for ",
    "reproduce runs ce --jobs 2": "--jobs is for ",
    "ruin": "No such command 'ruin'",
}


@pytest.mark.parametrize(("command", "message"), MESSAGES.items(), ids=lambda text: text[:70])
def test_a_mistake_is_one_line_and_writes_nothing(cli, trained_folder, command, message):
    before = sorted(trained_folder.rglob("*"))
    cli(trained_folder, *shlex.split(command)).one_line(message)
    assert sorted(trained_folder.rglob("*")) == before
