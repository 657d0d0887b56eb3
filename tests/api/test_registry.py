"""How methods are found: interrupts, digests of code, and names of other places."""

import pytest

from hierbench.api.registry import digest_of_code, find_method
from hierbench.config.recipe import load_recipe
from hierbench.execution.plan import make_plan
from hierbench.leaderboard.board import Board
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError


def test_the_users_interrupt_is_passed_on(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text("raise KeyboardInterrupt", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        find_method(str(path))


def test_the_digest_sees_code_beside_a_docstring_and_no_docstring(tmp_path):
    path, digests = tmp_path / "m.py", []
    for text in (
        'def f(x):\n    "doc"; return x * 1\n',
        'def f(x):\n    "doc"; return x * 2\n',
        'def f(x):\n    "one"\n    return x\n',
        'def f(x):\n    "other"\n\n    return x  # comment\n',
        '\ufeffdef f(x):\n    "other"\n    return x\n',
    ):
        path.write_text(text, encoding="utf-8")
        digests.append(digest_of_code(path.read_bytes()))
    assert digests[0] != digests[1]
    assert digests[2] == digests[3] == digests[4]


def test_re_ranked_runs_without_their_base_are_named(tmp_path, shapes):
    recipe = load_recipe("shapes")
    plan = make_plan(recipe, shapes, [find_method("crm")], ["type-I"], 1)
    crm = next(job for job in plan if not job.trains)
    Store(tmp_path).run(crm.id).plan(crm.spec.content())
    with pytest.raises(UserError, match="have lost their bases"):
        Board.of("shapes", read_records(tmp_path))


def test_a_dataset_of_the_runs_folder_is_suggested(cli, tmp_path, shapes):
    (job,) = make_plan(load_recipe("shapes"), shapes, [find_method("ce")], ["type-I"], 1)
    spec = job.spec.model_copy(update={"dataset": job.spec.dataset.model_copy(update={"name": "figs"})})
    Store(tmp_path / "runs").run(spec.id).plan(spec.content())
    for options in (["leaderboard"], ["compare", "ce"]):
        wanted = "unknown recipe 'fig'; did you mean 'figs'? known: cifar100, "
        cli(tmp_path, *options, "--dataset", "fig").one_line(wanted)
    assert "no runs of cifar100" in cli(tmp_path, "leaderboard", "--dataset", "cifar100").err
