"""A results repository: what comes from outside is data, and nothing gets worse without a word."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

from hierbench.records.compact import write_targets
from hierbench.runs.store import Store
from hierbench.sharing import pictures
from hierbench.sharing.card import Statement, read_card
from hierbench.sharing.intake import read_submission
from hierbench.sharing.repository import as_markdown, build, check, new_repository
from hierbench.sharing.submission import submit
from hierbench.sharing.verification.verify import verify
from tests.site_records import write_table

SAID = {"title": "Baselines", "authors": ["A. Author"], "licence": "CC-BY-4.0"}
INSTALL = "hierbench @ git+https://example.org/hierbench@0123abc"
HOSTILE = "<img src=x onerror=alert(1)> | [x](javascript:y) `@all` #1"


@pytest.fixture(scope="module")
def made(trained, data_dir, tmp_path_factory):
    """A repository with the submission `paper` of ce and crm, and beside it the submission `flamingo`."""
    folder = tmp_path_factory.mktemp("repository")
    new_repository(folder / "base", INSTALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "draw", lambda *_: [])
        for place, methods, title in (
            ("base/submissions/paper", ["crm"], "Baselines"),
            ("flamingo", ["flamingo"], HOSTILE),
        ):
            statement = Statement(**SAID | {"title": title, "authors": ["A. Author", HOSTILE]})
            submit(trained, folder / place, ["shapes"], statement, methods, data_dir)
    return folder


@pytest.fixture
def head(made, tmp_path):
    """A copy of the repository to change."""
    return Path(shutil.copytree(made / "base", tmp_path / "head"))


def rewrite(card, *pairs):
    text = card.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    card.write_text(text)


def test_a_submission_has_its_rows_their_bases_and_a_card(made, trained, tmp_path):
    folder = made / "base/submissions/paper"
    assert {row["method"] for row in json.loads((folder / "shapes.json").read_text())["rows"]} == {"ce", "crm"}
    card, runs = read_card(folder), list(Store(folder / "shapes").runs())
    seconds = sum(run.status["seconds"] for run in runs if not run.spec()["base"])
    assert card.compute.runs == len(runs) == 6 and card.compute.training_seconds == round(seconds, 1) > 0
    assert card.methods == ("ce", "crm") and card.datasets == ("shapes",) and list(card.compute.devices) == ["cpu"]
    (report,) = verify([folder], tmp_path)
    assert report.num_rejected == 0 and report.counts()["recomputed"] == 6
    assert read_submission(folder).problems == [] and read_submission(made / "flamingo").problems == []


def test_a_new_row_is_accepted_and_shown_as_text(made, head, tmp_path):
    shutil.copytree(made / "flamingo", head / "submissions/flamingo")
    found = check(made / "base", head, tmp_path / "none")
    text = as_markdown(found)
    assert found.problems == [] and [one.name for one in found.changed] == ["flamingo"]
    assert found.differences["shapes"].entry.added == ("flamingo:type-I",)
    assert "added flamingo:type-I" in text and "3 recomputed" in text and text.startswith("# Results: accepted")
    assert not re.search(r"(?<!\\)<img|@all|[^\\]\[x\]\(", text)
    same = check(made / "base", made / "base", tmp_path / "none")
    assert not same.problems and "No submission changes" in as_markdown(same)


class Bad:
    """Changes a repository to one that should not be merged; each method returns what must be said."""

    def __init__(self, head, made, tamperings, tree):
        self.head, self.tamperings, self.tree = head, tamperings, tree
        self.folder = Path(shutil.copytree(made / "flamingo", head / "submissions/flamingo"))
        self.runs = list(Store(self.folder / "shapes").runs())

    def claims(self):
        for run in self.runs:
            (run.folder / "predictions-compact.npz").unlink()
            self.tamperings.edit(run, "environment.json", threads=7)
            self.tamperings.reseal(run)
        return "3 runs are only claimed, the first of them flamingo type-I seed 0"

    def other_targets(self):
        targets = np.load(self.folder / "shapes/targets.npy").astype(np.int64)
        targets[[0, -1]] = targets[[-1, 0]]
        for run in self.runs:
            self.tamperings.predict(run, self.tamperings.predictions_of(run)[0], targets, self.tree)
            self.tamperings.reseal(run)
        write_targets(self.folder / "shapes", targets)
        for table in self.folder.glob("shapes*.*"):
            table.unlink()
        write_table(self.folder, "shapes")
        return "is rejected: its targets are not those of the other runs of the same data"

    def an_edited_card(self):
        rewrite(self.folder / "card.toml", ("runs = 3", "runs = 5"))
        return "card.toml says 5 runs"

    def other_boards(self):
        (self.head / "boards").mkdir()
        (self.head / "boards/shapes.md").write_text("99.2")
        return "boards/ is made of the submissions by the workflow"

    def a_removed_submission(self):
        shutil.rmtree(self.head / "submissions/paper")
        return "crm:type-I gets worse: removed"

    def other_results(self):
        copy = Path(shutil.copytree(self.head / "submissions/paper", self.head / "submissions/other"))
        for run in list(Store(copy / "shapes").runs()):
            if run.spec()["base"] is None:
                self.tamperings.edit(run, "environment.json", device="NVIDIA H100")
                self.tamperings.reseal(run)
        rewrite(copy / "card.toml", ('"cpu" = 6', '"NVIDIA H100" = 3, "cpu" = 3'))
        return "submissions other and paper have other results of ce:type-I"

    def a_link(self):
        (self.folder / "shapes/targets.npy").unlink()
        (self.folder / "shapes/targets.npy").symlink_to("/etc/passwd")
        return "shapes/targets.npy is a symbolic link"

    def a_linked_submission(self):
        (self.head / "submissions/x").symlink_to("/etc")
        return "submission x: it is not a folder"

    def an_odd_name(self):
        self.folder.rename(self.head / "submissions/$(touch marker); <b>x`touch marker`")
        return "its folder's name may have letters"

    def a_pipe(self):
        os.mkfifo(self.folder / "shapes.tex.json")
        return "shapes.tex.json is neither a file nor a folder"

    def a_method_that_writes(self):
        (self.folder / "shapes/methods/evil-000000000000.py").write_text("open('marker', 'w')\n")
        (self.runs[0].folder / "flamingo.py").write_text("open('marker', 'w')\n")
        return "is not the code that its spec names"

    def a_stray_file(self):
        (self.folder / "setup.py").write_text("open('marker', 'w')\n")
        return "setup.py is no file of a submission"

    def a_name_upwards(self):
        self.tamperings.respecify(self.runs[0], method__name="../../../marker")
        return "flamingo: "

    def a_huge_file(self):
        with (self.folder / "shapes-tradeoff.svg").open("wb") as file:
            file.truncate(1 << 33)
        return "shapes-tradeoff.svg has 8589934592 bytes"


@pytest.mark.parametrize("kind", [name for name in vars(Bad) if not name.startswith("_")])
def test_a_bad_change_is_refused_and_does_nothing(kind, made, head, tamperings, shapes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reason = getattr(Bad(head, made, tamperings, shapes.hierarchy("height")), kind)()
    found = check(made / "base", head, tmp_path / "none")
    assert any(reason in line for line in found.problems), found.problems
    text = as_markdown(found)
    assert text.startswith("# Results: refused") and not re.search(r"(?<!\\)<b>", text) and len(text) < 61_000
    assert not list(tmp_path.rglob("marker*"))


def test_what_gets_worse_needs_a_word_in_the_card(made, head, tamperings, shapes, trained, data_dir, monkeypatch):
    monkeypatch.setattr(pictures, "draw", lambda *_: [])
    folder = head / "submissions/paper"
    shutil.rmtree(folder)
    submit(trained, folder, ["shapes"], Statement(**SAID), ["ce"], data_dir)  # without crm
    found = check(made / "base", head, head / "none")
    assert found.problems == ["shapes: crm:type-I gets worse: removed; say why in the card's replaces"]
    with (folder / "card.toml").open("a") as file:
        file.write('\n[[replaces]]\ndataset = "shapes"\nrow = "crm:type-I"\nwhy = "withdrawn"\n')
    found = check(made / "base", head, head / "none")
    assert found.problems == [] and "the card says: withdrawn" in as_markdown(found)


def test_boards_are_built_of_all_submissions(made, head, cli, tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "draw", lambda *_: [])
    none = tmp_path / "none"
    cli(head, "repository", "build", ".", "--data-dir", none).ok()
    shutil.copytree(made / "flamingo", head / "submissions/flamingo")
    (head / "submissions/flamingo/shapes-tradeoff.svg").write_text("<svg onload='alert(1)'/>")  # it is never shown
    build(head, none)
    assert not list((head / "boards").glob("*.svg"))
    entries = json.loads((head / "boards/shapes-changes.json").read_text())
    assert [entry["added"] for entry in entries] == [["flamingo:type-I"], ["ce:type-I", "crm:type-I"]]
    (report,) = verify([head / "boards"], none)
    assert report.counts()["recomputed"] == 9 and report.num_rejected == 0
    (head / "submissions/flamingo/card.toml").unlink()
    before = (head / "boards/shapes.md").read_bytes()
    cli(head, "repository", "build", ".", "--data-dir", none).one_line("submission flamingo: ")
    assert (head / "boards/shapes.md").read_bytes() == before
    cli(head, "repository", "new", ".", "--install", INSTALL).one_line("exists; move it away")
    cli(tmp_path, "repository", "new", "x", "--install", "$(touch marker)").one_line(
        "give a requirement as pip takes it"
    )


def git(folder, *arguments):
    names = ("-c", "user.name=x", "-c", "user.email=x@localhost", "-c", "init.defaultBranch=main")
    return subprocess.run(["git", *names, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


def carry_out(steps, folder, environment):
    """Carry out the `run:` steps of a workflow's job as a code forge does; return the first exit code that is not 0."""
    for step in steps:
        assert ("run" in step) != ("uses" in step)
        if "run" in step:
            assert "${{" not in step["run"]  # nothing from outside becomes part of a command
            where = folder / step.get("working-directory", ".")
            command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
            done = subprocess.run(command, cwd=where, env=os.environ | environment, capture_output=True, text=True)
            if done.returncode:
                return done
    return done


@pytest.fixture(scope="module")
def forge(cli, made, tmp_path_factory):
    """A git repository with its workflow, and what a code forge gives to its steps."""
    folder = tmp_path_factory.mktemp("forge")
    repository = Path(shutil.copytree(made / "base", folder / "origin"))
    git(repository, "init", "--quiet")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "base")
    workflow, tools = yaml.safe_load((repository / ".github/workflows/check.yml").read_text()), folder / "tools"
    tools.mkdir()
    (tools / "uv").write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" >> {folder}/installed\n')
    (tools / "uv").chmod(0o755)
    fast = "from hierbench.sharing import pictures as p; p.draw = lambda *_: []"
    environment = {"PATH": f"{tools}:{os.environ['PATH']}", "GITHUB_STEP_SUMMARY": str(folder / "summary.md")}
    environment |= {name: str(value) for name, value in workflow["env"].items()}
    with cli.program(tools / "hierbench", python=("-c", f"{fast}; from hierbench.cli.main import main; main()")):
        yield repository, workflow, environment


def test_the_workflow_may_only_read(forge):
    _, workflow, _ = forge
    assert set(workflow[True]) == {"pull_request", "push"}  # YAML reads "on" as true
    assert workflow["permissions"] == {"contents": "read"}
    jobs = workflow["jobs"]
    assert {name: job["permissions"] for name, job in jobs.items() if "permissions" in job} == {
        "commit": {"contents": "write"}
    }
    assert "secrets" not in json.dumps(jobs) and "hierbench" not in json.dumps(jobs["commit"]["steps"])
    for name in ("check", "build"):
        checkouts = [step for step in jobs[name]["steps"] if step.get("uses", "").startswith("actions/checkout")]
        assert all(step["with"]["persist-credentials"] is False for step in checkouts)


@pytest.mark.parametrize("name", ["flamingo", "$(touch marker)`touch marker`;touch marker #<b>"])
def test_the_workflow_checks_a_pull_request(forge, made, tmp_path, name):
    repository, workflow, environment = forge
    refused, summary = name != "flamingo", tmp_path / "summary.md"
    branch = "bad" if refused else "good"
    git(repository, "checkout", "--quiet", "-b", branch, "main")
    shutil.copytree(made / "flamingo", repository / "submissions" / name)
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "change")
    git(repository, "checkout", "--quiet", "--detach", "main")
    git(repository, "merge", "--quiet", "--no-ff", "--no-edit", branch)
    git(tmp_path, "clone", "--quiet", "--no-local", str(repository), "head")
    git(tmp_path / "head", "checkout", "--quiet", "--detach", git(repository, "rev-parse", "HEAD").strip())
    git(repository, "checkout", "--quiet", "main")
    done = carry_out(workflow["jobs"]["check"]["steps"], tmp_path, environment | {"GITHUB_STEP_SUMMARY": str(summary)})
    assert done.returncode == int(refused), done.stderr
    said = summary.read_text()
    assert ("# Results: refused" if refused else "added flamingo:type-I") in said
    assert not re.search(r"(?<!\\)<b>", said) and not list(tmp_path.rglob("marker"))
    assert INSTALL in (repository.parent / "installed").read_text()


def test_the_report_is_written_into_the_pull_request_as_text(forge, tmp_path):
    """`gh` is replaced by a program that keeps what it was given."""
    repository, _, environment = forge
    workflow = yaml.safe_load((repository / ".github/workflows/comment.yml").read_text())
    assert set(workflow[True]) == {"workflow_run"} and workflow[True]["workflow_run"]["workflows"] == ["results"]
    assert workflow["permissions"] == {"actions": "read", "pull-requests": "write"}
    (step,) = [step for step in workflow["jobs"]["comment"]["steps"] if "run" in step]
    gh = Path(environment["PATH"].split(":")[0]) / "gh"
    gh.write_text(
        '#!/bin/bash\nif [ "$2" = list ]; then echo "$NUMBER"; else printf "%s|" "$@" > arguments; fi\n',
        encoding="utf-8",
    )
    gh.chmod(0o755)
    (tmp_path / "report.md").write_text("added $(touch marker) by @somebody\n" + "é" * 40_000, encoding="utf-8")
    for number in ("", "7"):
        done = carry_out([step], tmp_path, environment | {"HEAD_SHA": "0" * 40, "NUMBER": number})
        assert done.returncode == 0 and (tmp_path / "arguments").exists() == bool(number)
    assert (tmp_path / "arguments").read_text().startswith("pr|comment|7|--edit-last|--create-if-none|--body-file|")
    body = (tmp_path / "comment.md").read_text(encoding="utf-8")
    assert body.startswith("added $(touch marker) by @\u2060somebody\né") and len(body) < 50_000
    assert not list(tmp_path.rglob("marker"))


@pytest.mark.thorough
def test_the_workflow_builds_the_boards_after_a_merge(forge, made, tmp_path):
    repository, workflow, environment = forge
    for place in ("first", "again"):
        (tmp_path / place).mkdir()
        git(tmp_path / place, "clone", "--quiet", str(repository), "repository")
        if place == "again":
            git(tmp_path / place, "clone", "--quiet", "--branch", "boards", str(repository), "old")
        assert carry_out(workflow["jobs"]["build"]["steps"], tmp_path / place, environment).returncode == 0
        shutil.move(tmp_path / place / "repository/boards", tmp_path / place / "boards")  # as an artifact
        assert carry_out(workflow["jobs"]["commit"]["steps"], tmp_path / place, environment).returncode == 0
        assert {row["method"] for row in json.loads(git(repository, "show", "boards:shapes.json"))["rows"]} == {
            "ce", "crm"
        }  # fmt: skip
        assert len(git(repository, "log", "--format=%h", "boards").split()) == 1  # nothing has changed the second time
    assert not (repository / "boards").exists()
