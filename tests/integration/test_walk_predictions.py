"""docs/your-predictions.md, block by block, in an empty folder."""

import csv
import re
import shlex
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs/your-predictions.md"


def test_the_walk_through_runs_as_it_stands(cli, tmp_path, monkeypatch):
    from hierbench.data.datasets import shapes

    monkeypatch.setattr(shapes, "PER_CLASS", {"train": 2, "val": 1, "test": 4})
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```([a-z]*)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    said = []
    for kind, text in blocks:
        if kind == "python":
            exec(text, {})
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            assert program == "hierbench"
            said.append(cli(tmp_path, *arguments).ok().out)
    assert len(said) == 7
    assert "bootstrap interval over images" in said[0] and '"over": "seeds"' in said[1]
    assert "my ViT (scored)" in said[4] and "HierDist@20" not in said[5] and "HierDist@5" in said[5]
    rows = list(csv.DictReader(said[6].splitlines()))
    assert [(row["type"], row["method"]) for row in rows] == [("scored", "my ViT"), ("scored", "my ViT, top 5")]
    assert rows[0]["top1"] == rows[1]["top1"] and rows[0]["hierdist@20"] and not rows[1]["hierdist@20"]
