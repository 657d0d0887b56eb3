import io
import subprocess
import sys
import tarfile
import zipfile
from contextlib import redirect_stdout
from pathlib import Path

import pytest

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
    assert hierbench.__all__ == ["Hierarchy", "Method", "PostHoc", "evaluate", "hyperparameter"]
    assert all(getattr(hierbench, name).__name__ == name for name in hierbench.__all__)
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


def test_the_version_is_that_of_the_package(cli, tmp_path):
    from importlib.metadata import version

    assert (
        cli(tmp_path, "--version").ok().out
        == f"hierbench {hierbench.__version__}\n"
        == f"hierbench {version('hierbench')}\n"
    )


def tracked():
    """The files of the project: what git knows, or in an unpacked archive what is there."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("no git checkout")
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


def test_the_wheel_holds_the_four_folders(tmp_path):
    """Everything that runs is in the wheel under `hierbench`, and nothing lands beside it."""
    files = tracked()
    copy = tmp_path / "copy"
    with tarfile.open(tmp_path / "files.tar", "w") as tar:
        for name in files:
            tar.add(ROOT / name, name, recursive=False)
    with tarfile.open(tmp_path / "files.tar") as tar:
        tar.extractall(copy, filter="data")
    build = f"import setuptools.build_meta as b; b.build_wheel({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", build], cwd=copy, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    (wheel,) = tmp_path.glob("*.whl")
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = set()
    for name in files:
        folder, _, rest = name.partition("/")
        published = name.startswith("leaderboard/published/")
        script = name == "benchmarks/hierarchies/derive_from_wordnet.py"
        if folder in FOLDERS and not rest.endswith(".md") and not published and not script:
            expected.add(f"{FOLDERS[folder]}/{rest}")
    assert inside == expected


def test_no_lock_file_and_no_path_of_the_project_s_machines_is_committed():
    private = [str(ROOT).encode(), b"/" + b"root/", b"site-" + b"packages/"]
    for name in tracked():
        assert not name.endswith((".lock", "package-lock.json"))
        content = (ROOT / name).read_bytes() if (ROOT / name).is_file() else b""
        assert not any(path in content for path in private), name


def test_every_folder_says_how_to_add_to_it():
    for folder in ("methods", "benchmarks", "leaderboard"):
        assert len((ROOT / folder / "README.md").read_text(encoding="utf-8").splitlines()) <= 18


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
