"""`hierbench verify --retrain`: honest runs are reproduced bitwise, and a consistent forgery is found."""

import json
import shutil

import numpy as np
import pytest

from hierbench.runs.compact import write_compact
from hierbench.runs.store import Store
from hierbench.studies.retraining import is_close
from tests.support.run_files import digest_of, predictions_of, spec_of
from tests.support.short import SMALL
from tests.support.tamperings import predict, reseal

RUN = ("run", "--methods", "ce,crm", "--dataset", "shapes", "--types", "type-I", "--seeds", "2", *SMALL)


def improve(run, scores, targets, shapes):
    """Give a run better predictions, in the form that is there, and the metrics and seal that follow."""
    scores[np.arange(len(targets)), targets] += 100.0 * (np.arange(len(targets)) % 9 > 0)
    predict(run, scores, targets, shapes.hierarchy("height"))
    reseal(run)


def test_retrained_runs_are_reproduced_and_forged_ones_are_not(cli, data_dir, tmp_path, shapes):
    shutil.copytree(data_dir / "prepared", tmp_path / "data/prepared")
    cli(tmp_path, *RUN).ok()
    content = json.loads(cli(tmp_path, "verify", "runs", "--retrain", "1", "--json").ok().out)
    again = [run for run in content["folders"][0]["runs"] if run["verdict"] == "retrained"]
    assert all(run["notes"] == ["trained again: bitwise the same"] for run in again)
    labels = sorted(run["label"] for run in again)  # with what is re-ranked, if that was drawn
    assert [label.split()[0] for label in labels] in (["ce"], ["ce", "crm"])
    assert len({label[-1] for label in labels}) == 1

    (tmp_path / "claims").mkdir()
    for run in Store(tmp_path / "runs").runs():  # without predictions, as published records are
        shutil.copytree(run.folder, tmp_path / "claims" / run.folder.name, ignore=shutil.ignore_patterns("*.npz"))
    cli(tmp_path, "verify", "claims", "--retrain", "1").one_line("no recorded request")
    shutil.copy(tmp_path / "runs/requests.jsonl", tmp_path / "claims")
    shutil.copytree(tmp_path / "claims", tmp_path / "reranked")
    done = cli(tmp_path, "verify", "claims", "--retrain", "9").ok()
    assert "claims: 4 runs: 4 retrained" in done.out

    # A re-ranked run whose record claims better ranks than its base gives: without scores, nothing else tells.
    crm = next(run for run in Store(tmp_path / "reranked").runs() if spec_of(run)["method"]["name"] == "crm")
    scores, targets = predictions_of(Store(tmp_path / "runs").run(crm.folder.name))
    improve(crm, scores, targets, shapes)
    write_compact(crm.folder, scores, targets, digest_of(crm, "predictions.npz"))
    done = cli(tmp_path, "verify", "reranked", "--retrain", "9")
    assert (
        done.code == 1
        and "rejected: crm type-I seed" in done.out
        and " and 2 more: trained again: bitwise the same" in done.out
    )
    assert "trained again in the same environment: top1 is " in done.out, done.out

    run = next(run for run in Store(tmp_path / "runs").runs() if spec_of(run)["method"]["name"] == "ce")
    improve(run, *predictions_of(run), shapes)
    done = cli(tmp_path, "verify", "runs", "--retrain", "9")
    assert done.code == 1 and "trained again in the same environment: top1 is " in done.out, done.out
    shutil.rmtree(tmp_path / "data/prepared")
    cli(tmp_path, "verify", "claims", "--retrain", "1").one_line("can be trained again here")


@pytest.mark.parametrize(
    ("metric", "number", "close", "far", "examples"),
    [
        ("top1", 75.0, 76.5, 80.0, 10_000),
        ("top1", 50.0, 60.0, 65.0, 384),
        ("hierdist@1", 2.0, 2.1, 2.5, 10_000),
        ("mistake_severity", None, None, 1.0, 10),
    ],
)
def test_the_tolerance_between_machines(metric, number, close, far, examples):
    assert is_close(metric, number, close, examples) and not is_close(metric, number, far, examples)
