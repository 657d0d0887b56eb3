"""The examples run as they stand, each in a folder of its own."""

import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LINES = {"haframe": 200, "own_method": 60, "own_features": 60}


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example(name, tmp_path, monkeypatch, capsys):
    file = EXAMPLES / f"{name}.py"
    assert len(file.read_text(encoding="utf-8").splitlines()) <= LINES[name]
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    matplotlib.use("agg")
    runpy.run_path(str(file), run_name="__main__")
    out = capsys.readouterr().out
    picture = {"haframe": "haframe.svg", "own_features": "tradeoff.svg"}.get(name)
    if picture:
        assert (
            ET.parse(tmp_path / "hierbench-examples" / picture).getroot().tag.endswith("svg")
            and f"wrote {picture}" in out
        )
    assert ("HAFrame" in out or "focal loss" in out) and out.count("cross-entropy") >= 1
    assert not list(work.iterdir())
    if name == "haframe":
        assert "s_min = -0.14" in out and "largest error of W W^T = S" in out
