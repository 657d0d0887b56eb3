"""docs/publishing.md, block by block, in an empty folder."""

import json
import re
import shlex
import shutil
from pathlib import Path

from hierbench.experiments.publication.card import read_statement

PAGE = Path(__file__).resolve().parents[2] / "docs/publishing.md"


def test_the_page_runs_as_it_stands(cli, tmp_path, monkeypatch):
    from hierbench.data.datasets import shapes
    from hierbench.experiments.publication import pictures

    monkeypatch.setattr(shapes, "PER_CLASS", {"train": 4, "val": 2, "test": 8})
    monkeypatch.setattr(pictures, "draw", lambda *_: [])  # four times three; drawn in test_publish.py
    said = {}
    for kind, text in re.findall(r"^```([a-z]*)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S):
        if kind == "toml":
            (tmp_path / "card.toml").write_text(text)
            assert read_statement(tmp_path / "card.toml").replaces[0].row == "crm:type-I"
            continue
        for line in text.splitlines():
            program, *arguments = shlex.split(line)
            if program == "cp":
                shutil.copytree(tmp_path / arguments[1], tmp_path / arguments[2])
            else:
                assert program == "hierbench"
                arguments += ["--jobs", "1"] if arguments[0] == "run" else []  # in this process
                said[" ".join(arguments[:2])] = cli(tmp_path, *arguments).ok().out
    assert "added flamingo:type-I" in said["publish --dataset"]
    assert "4 recomputed" in said["verify submission"]
    assert "added crm:type-I" in said["repository check"] and "# Results: accepted" in said["repository check"]
    rows = json.loads((tmp_path / "results/boards/shapes.json").read_text())["rows"]
    assert {row["method"] for row in rows} == {"ce", "crm"}
    table = PAGE.read_text(encoding="utf-8").split("| File | Content |")[1].split("\n\n")[0]
    for name in re.findall(r"`(shapes\S*|[-.]\S+)`", table):
        path = name if name.startswith("shapes") else f"shapes{name}"
        assert "<id>" in path or (tmp_path / "boards" / path).exists() or path.endswith(".svg"), path
