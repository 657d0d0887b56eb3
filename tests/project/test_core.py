"""The core alone: docs/library.md runs where every package but NumPy, SciPy and PyTorch is missing."""

import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

from hierbench.cli import main

ROOT = Path(__file__).resolve().parents[2]
CORE = {"numpy", "scipy", "torch"}
BLOCKER = "import sys\nsys.modules.update(dict.fromkeys({names!r}))\n"  # as if they were not installed
IMPORT_NAMES = {"biopython": "Bio", "lightning-fabric": "lightning_fabric"}


def other_packages():
    requirements = [re.match(r"[A-Za-z0-9_-]+", line)[0] for line in distribution("hierbench").requires]
    return sorted({IMPORT_NAMES.get(name, name) for name in requirements} - CORE)


def test_the_pages_of_the_core_need_nothing_else(tmp_path):
    page = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = other_packages()
    assert len(blocks) == 3 and {"pydantic", "typer", "rich", "pandas", "torchvision"} <= set(names)
    script = BLOCKER.format(names=names) + "\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "top1" in done.stdout
    assert [len(block.strip().splitlines()) <= 20 for block in blocks] == [True] * 3


def extra_packages(extra):
    lines = [line for line in distribution("hierbench").requires if f'extra == "{extra}"' in line.replace("'", '"')]
    return sorted(IMPORT_NAMES.get(name, name) for name in (re.match(r"[A-Za-z0-9_-]+", line)[0] for line in lines))


def test_what_is_missing_is_named_with_its_extra(tmp_path):
    """Tables and scores need no package that trains; a command that does says so in a line."""
    names = extra_packages("train")
    assert names == sorted(main.TRAIN)
    (tmp_path / "targets.txt").write_text("apple\nworm\n")
    (tmp_path / "p.csv").write_text("id,predicted\na,apple\nb,apple\n")
    start = BLOCKER.format(names=names) + "from hierbench.cli.main import main\nmain()\n"
    for arguments, code, text in [
        (["score", "p.csv", "--tree", "cifar100", "--targets", "targets.txt"], 0, "Mistake severity"),
        (["leaderboard", "--dataset", "cifar100", "--numbers", "paper"], 0, "HAFrame"),
        (["run", "--dataset", "shapes"], 2, "lightning_fabric is not installed; run: "),
        (["tune", "--dataset", "shapes"], 2, "optuna is not installed; run: "),
    ]:
        done = subprocess.run(
            [sys.executable, "-c", start, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert (done.returncode, text in done.stdout + done.stderr) == (code, True), done.stderr
