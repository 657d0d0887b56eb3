"""The core alone: docs/library.md runs where every package but NumPy, SciPy and PyTorch is missing."""

import re
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path

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
