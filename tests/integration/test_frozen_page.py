"""The steps of docs/frozen-features.md, one after another, as they are printed."""

import re
import shlex
from pathlib import Path

from hierbench.data.datasets import shapes as generated

PAGE = Path(__file__).resolve().parents[2] / "docs/frozen-features.md"


def test_the_page_runs_from_top_to_bottom(cli, tmp_path, monkeypatch):
    monkeypatch.setattr(generated, "PER_CLASS", {"train": 8, "val": 2, "test": 4})
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(commands) == 6 and all(command[0] == "hierbench" for command in commands)
    said = []
    for command in commands:
        more = ["--jobs", "1", "--mlflow", "off"] if command[1] == "run" else []  # no process to be started
        said.append(cli(tmp_path, *command[1:], *more).ok().said)
    _, planned, ran, again, listed, pruned = said
    number = 2 * 48 * 8 + 48 * 2 + 48 * 4
    assert f"{number * 512 * 4 / 1e6:.1f} MB, to extract, about" in planned
    assert "torchvision:resnet18 frozen, views 2, 3 epochs" in ran and ran.count("done: ") == 5
    assert "to extract" not in again and "done: hafeature type-I seed 0" in again
    assert "torchvision:resnet18, weights random, seed 0, average-pooled, views 2" in listed
    assert "0 removed" in pruned and "1 caches of features" in pruned
