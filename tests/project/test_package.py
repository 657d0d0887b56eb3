import io
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path

import pytest
import yaml

import hierbench
from hierbench.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = {
    "hierbench": "hierbench",
    "methods": "hierbench/methods",
    "benchmarks": "hierbench/benchmarks",
    "leaderboard": "hierbench/leaderboard",
}


def test_public_names():
    functions = ["answer_board", "board", "evaluate", "hyperparameter", "metrics", "report", "run", "score"]
    assert hierbench.__all__ == ["Board", "Hierarchy", "Method", "PostHoc", *functions]
    assert dir(hierbench) == sorted([*hierbench.__all__, "__version__"])
    for name in hierbench.__all__:
        assert getattr(hierbench, name).__name__.removeprefix("hierbench.") == name
    assert sorted(hierbench.metrics.__all__) == sorted(dir(hierbench.metrics))
    assert all(hasattr(hierbench.metrics, name) for name in hierbench.metrics.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        hierbench.nothing  # noqa: B018


def test_help_opens_with_a_quick_start_that_runs_and_the_public_names():
    import pydoc

    opening = pydoc.plain(pydoc.render_doc(hierbench)).partition("PACKAGE CONTENTS")[0]
    first = opening.index("Quick start")
    assert first < opening.index("from hierbench import Hierarchy, evaluate") < opening.index("Public names:")
    for name in hierbench.__all__:
        assert f"\n        {name} " in opening
    code = [line[4:] for line in hierbench.__doc__.splitlines() if line.startswith("    ")]
    program = "\n".join(code[: next(i for i, line in enumerate(code) if line.startswith("print(")) + 1])
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(program, {})
    assert "'top1':" in printed.getvalue() and "'hierdist@2':" in printed.getvalue()


def test_the_version_and_the_citation(cli, tmp_path):
    """Those of the package, and a valid Citation File Format with the paper's title as everywhere else."""
    printed = cli(tmp_path, "--version").ok().out
    assert printed == f"hierbench {hierbench.__version__}\n" == f"hierbench {metadata.version('hierbench')}\n"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors", "type", "license"} <= set(citation)
    (paper,) = citation["references"]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert paper["title"] in readme and [author["family-names"] for author in paper["authors"]] == ["Liang", "Davis"]


def tracked():
    """The files of the project: those of git, or of an unpacked archive."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("no git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the project's files, without git."""
    folder = tmp_path_factory.mktemp("project")
    for name in tracked():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name, follow_symlinks=False)
    return folder


def built(code, folder):
    """Call a function of the build backend in a folder, with the folder `out` for its result, and return the file."""
    program = f"import setuptools.build_meta as b, os; os.makedirs('out', exist_ok=True); print(b.{code})"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder / "out" / done.stdout.split()[-1]


def test_the_source_archive_and_its_wheel(copy, tmp_path):
    """Everything that runs is in the wheel under `hierbench`, and nothing lands beside it; the licences are there.

    It is built from the source archive, whose version it keeps, without git and in whatever folder it is unpacked.
    """
    archive = built("build_sdist('out')", copy)
    version = re.fullmatch(r"hierbench-(.+)\.tar\.gz", archive.name)[1]
    assert version == tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools_scm"]["fallback_version"]
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    change = (unpacked / "pyproject.toml").read_text().replace(f'fallback_version = "{version}"', "")
    (unpacked / "pyproject.toml").write_text(change)  # the version is that of the archive, not this one
    wheel = built("build_wheel('out')", unpacked)
    assert wheel.name == f"hierbench-{version}-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    expected = set()
    for name in tracked():
        folder, _, rest = name.partition("/")
        published = name.startswith("leaderboard/published/")
        script = name == "benchmarks/hierarchies/derive_from_wordnet.py"
        if folder in FOLDERS and not rest.endswith(".md") and not published and not script:
            expected.add(f"{FOLDERS[folder]}/{rest}")
    assert {name for name in names if ".dist-info/" not in name} == expected
    licences = {name.partition(".dist-info/licenses/")[2] for name in names} - {""}
    assert licences == {"LICENSE", "benchmarks/hierarchies/NOTICE"}


@pytest.mark.thorough
def test_with_git_the_version_is_that_of_the_tag_and_the_archives_hold_the_same(copy, tmp_path):
    project = shutil.copytree(copy, tmp_path / "project", symlinks=True)
    shutil.rmtree(project / "out", ignore_errors=True)

    def git(*words):
        named = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *named, *words], cwd=project, check=True, capture_output=True)

    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "x")
    git("tag", "v3.4.5")
    archive = built("build_sdist('out')", project)
    assert archive.name == "hierbench-3.4.5.tar.gz"
    with tarfile.open(archive) as tar:
        inside = {name.partition("/")[2].partition("/")[0] for name in tar.getnames()}
    assert not inside & {"tests", "typings", ".ci", ".gitignore", "Dockerfile"} and {"docs", "methods"} <= inside
    (project / "out").rename(tmp_path / "out")
    git("commit", "-qm", "y", "--allow-empty")
    assert built("build_sdist('out')", project).name.startswith("hierbench-3.4.6.dev1+g")


def test_no_lock_file_and_no_path_of_the_project_s_machines_is_committed():
    private = [str(ROOT).encode(), b"/" + b"root/", b"site-" + b"packages/"]
    for name in tracked():
        assert not name.endswith((".lock", "package-lock.json"))
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        assert not any(path in content for path in private), name


def test_an_interrupt_while_the_program_is_imported_is_one_line(monkeypatch, capsys):
    class Interrupt:
        def find_spec(self, name, *_):
            if name == "hierbench.cli.main":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "hierbench.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupt(), *sys.meta_path])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "hierbench: error: interrupted; nothing was begun\n"
