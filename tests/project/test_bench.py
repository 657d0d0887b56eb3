import contextlib
import io
import json
import math
import time
from pathlib import Path

import pytest

import tests.tools.bench as measuring
import tests.tools.peers as peers
from hierbench.execution.parameters import stand_in_tree
from hierbench.leaderboard.formats import render
from hierbench.methods.ce import CrossEntropy
from hierbench.methods.haframe import HAFrame
from tests.tools.bench import QUICK, Sizes, bench, bench_table, photograph, trained_methods

LARGE = (("wrn10-1-s4", 2), ("wrn10-1-s4", 2))
TINY = Sizes("wrn10-1-s4", 4, 1, 64, (2, 4, 8), 4, 1, LARGE, "wrn10-1-s4", 2, 4, 1, 32)
ROWS = {(kind, name) for kind in ("type-I", "type-II") for name in ("ce", "flamingo", "hafeature")}
ROWS |= {("type-II", "haframe")}
KEYS = {  # of the parts of a report
    "": "device name threads precision backbone batch steps methods features evaluation prepare card peak_mib seconds",
    "steps": "method type precision step_ms bare_ms ratio share peak_mib",
    "rows": "method features ms ratio",
    "features": "type step_ms bare_ms ratio",
    "evaluation": "examples classes metrics_s crm_s frame_s extra_mib",
    "prepare": "width height images_per_s decoded_per_s ratio",
}


@pytest.fixture(scope="module")
def report():
    with contextlib.redirect_stderr(io.StringIO()) as err:
        report = bench("cpu", TINY)
    assert err.getvalue().startswith("measuring: evaluation (1 of 5)")
    return report


def numbers(content):
    if isinstance(content, dict | list | tuple):
        for value in content.values() if isinstance(content, dict) else content:
            yield from numbers(value)
    elif isinstance(content, int | float):
        yield content


def test_every_method_type_and_precision_is_measured(report):
    for precision in {report["precision"], "float32"}:
        rows = [(row["type"], row["method"]) for row in report["steps"] if row["precision"] == precision]
        assert set(rows) >= ROWS and len(rows) == len(set(rows))
        assert {name for _, name in rows} == {cls.name for cls in trained_methods()}
    alone = report["methods"]["rows"]
    assert [row["method"] for row in alone] == [cls.name for cls in trained_methods()]
    assert {row["features"] for row in alone} == {8}


def test_a_slow_method_is_a_multiple_of_haframe(monkeypatch):
    """One whose loss waits for a tenth of a second, against HAFrame on eight classes."""

    class Slow(CrossEntropy):
        name = "slow"

        def loss(self, outputs, targets):
            time.sleep(0.1)
            return super().loss(outputs, targets)

    monkeypatch.setattr(measuring, "trained_methods", lambda: [Slow, HAFrame])
    slow, itself = measuring.measure_methods("cpu", 3, 4, stand_in_tree((2, 4, 8)))
    assert slow["ms"] >= 100 and slow["ratio"] > max(5.0, itself["ratio"])


def test_numbers_are_finite_and_the_table_shows_them(report):
    content = json.loads(json.dumps(report, allow_nan=False))
    assert content["batch"] == 4
    parts = {"": content, "rows": content["methods"]["rows"]} | content
    for name, keys in KEYS.items():
        part = parts[name][0] if isinstance(parts[name], list) else parts[name]
        assert set(part) == set(keys.split()), name
    assert content["evaluation"].pop("extra_mib") >= 0
    assert all(math.isfinite(number) and number > 0 for number in numbers(content))
    shown = render(bench_table(report), "terminal")
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    for name, words in (
        ("steps", "step in {precision}, {type} {method} {step_ms:.1f} {bare_ms:.1f} {ratio:.2f}"),
        ("rows", "pass of {features} features {method} {ms:.1f} - {ratio:.2f}"),
        ("features", "step on cached features, {type} {step_ms:.1f} {bare_ms:.1f} {ratio:.2f}"),
    ):
        for row in (report | report["methods"])[name]:
            assert any(line.startswith(words.format(**row)) for line in lines), row
    for rate in (f"{report['evaluation']['crm_s']:.2f} s", f"{report['prepare']['images_per_s']:.0f} images/s"):
        assert rate in shown
    for words in ("batches of 4, 8 classes", "float32", "64 x 8", f"{report['threads']} threads"):
        assert words in shown


def test_the_measurements_for_cuda_run_on_a_cpu(monkeypatch, report):
    monkeypatch.setattr(measuring, "PREPARED_SIZE", (32, 32))
    card = measuring.measure_card("cpu", TINY)
    assert set(card) == {"resnet50_images_per_s", "wrn28_8_share", "matmul_tflops"}
    assert all(math.isfinite(number) and number > 0 for number in numbers(card))
    shown = render(bench_table(report | {"card": card}), "terminal")
    assert f"{card['resnet50_images_per_s']:.0f} images/s" in shown and "WideResNet-28-8" in shown


def test_a_photograph_is_as_large_as_one(tmp_path):
    bits = 8 * photograph(tmp_path / "a.jpg", 500, 375, 0).stat().st_size / (500 * 375)
    assert 1.5 < bits < 4.5  # per pixel


def test_preparing_is_measured_on_a_fixed_number_of_images(tmp_path):
    """`--quick` and the whole measurement differ in the steps alone."""
    files = [photograph(tmp_path / "a.jpg", 64, 48, 0)] * 4
    assert [len(column) for column in measuring.prepare_seconds(files, tmp_path, 2)] == [2, 2]
    assert (QUICK.photographs, QUICK.prepare_rounds) == (Sizes().photographs, Sizes().prepare_rounds)


def test_the_command(monkeypatch, report, capsys):
    def measured(device, sizes):
        assert (device, sizes) == ("cpu", QUICK)
        return report

    monkeypatch.setattr(measuring, "bench", measured)
    measuring.main(["--device", "cpu", "--quick", "--json"])
    content = json.loads(capsys.readouterr().out)
    assert content == {"schema": 1} | json.loads(json.dumps(report))
    assert content["device"] == "cpu" and content["card"] is None


def test_the_page_on_other_code_is_of_this_script():
    page = (Path(__file__).resolve().parents[2] / "docs/speed.md").read_text(encoding="utf-8")
    assert page.startswith(peers.PAGE) and page.endswith(peers.MISSING)
    rows = [line for line in page.splitlines() if line.startswith("| ")][1:]
    assert {name for name in peers.PEERS if any(f"| {name} " in row for row in rows)} == set(peers.PEERS)


def test_other_code_that_is_not_there_is_named(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        peers.compare(tmp_path)
    assert ended.value.code == 2 and f"{tmp_path} lacks making-better-mistakes" in capsys.readouterr().err
