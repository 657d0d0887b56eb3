"""Every block of the README and of the pages in docs/ is run as it stands, or parsed if it cannot be run here.

How blocks are run, and what is made smaller: tests/support/pages.py. Numbers and drawings have tests of their own.
"""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.publications import loose

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/*.md"))]
# Pages that are run by tests which go on from what the page has made.
ELSEWHERE = {"docs/your-data.md": "test_your_data.py", "docs/python.md": "test_python.py"}


@pytest.mark.parametrize("path", [path for path in PAGES if path not in ELSEWHERE])
def test_a_page_runs_from_top_to_bottom(page, path):
    page(path)


def test_other_pages_run_where_it_is_said():
    for path, test in ELSEWHERE.items():
        assert f'{path}"' in (Path(__file__).parent / test).read_text(encoding="utf-8")


def test_the_files_that_publishing_makes_are_described(page):
    folder, _ = page("docs/publishing.md")
    table = (ROOT / "docs/publishing.md").read_text(encoding="utf-8").split("| File | Content |")[1].split("\n\n")[0]
    for name in re.findall(r"`(shapes\S*|[-.]\S+)`", table):
        path = name if name.startswith("shapes") else f"shapes{name}"
        assert "<id>" in path or (folder / "boards" / path).exists() or path.endswith(".svg"), path


def test_the_workflow_of_publishing_with_others_verifies_each_table(page, cli, tmp_path):
    published, _ = page("docs/publishing.md")
    place, _ = page("docs/publishing-with-others.md")
    workflow = yaml.safe_load((place / ".github/workflows/verify.yml").read_text(encoding="utf-8"))
    commands = [step["run"] for step in workflow["jobs"]["verify"]["steps"] if "run" in step]
    assert commands[0].startswith("pip install ") and len(commands) == 3
    shutil.copytree(published / "boards", tmp_path / "tables")
    for command in commands[1:]:
        cli(tmp_path, *shlex.split(command)[1:]).ok()
    assert (tmp_path / "site/index.html").is_file()
    metrics = min((loose(tmp_path / "tables") / "shapes").glob("*/metrics.json"))
    metrics.write_text(metrics.read_text(encoding="utf-8").replace('"top1": ', '"top1": 1'), encoding="utf-8")
    assert cli(tmp_path, *shlex.split(commands[1])[1:]).code == 1


def test_printed_output_of_python_blocks(page):
    from hierbench.metrics import find_metric, known_metrics

    _, outputs = page("docs/metrics.md")
    names = outputs["names"]
    assert find_metric("ece").formula in "".join(text for text in outputs.values() if isinstance(text, str))
    assert list(names["values"]) == ["top1", "hf_macro", "hops@20", "ece", "haurc_climbing"]
    assert names["every"].keys() == set(known_metrics(names["tree"]))


def test_the_printed_method_is_short(page):
    folder, _ = page("docs/your-method.md")
    assert len((folder / "my_soft_labels.py").read_text(encoding="utf-8").strip().splitlines()) <= 25
