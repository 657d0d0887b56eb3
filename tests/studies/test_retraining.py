"""Runs trained again: honest ones are reproduced bitwise, and a consistent forgery is found."""

import shutil

import numpy as np
import pytest

from hierbench.runs.compact import write_compact
from hierbench.runs.store import Store
from hierbench.sharing.verification.verification import verify
from hierbench.studies.comparison import compare
from hierbench.studies.retraining import is_close
from hierbench.utils.errors import UserError
from tests.support.run_files import digest_of, predictions_of, spec_of
from tests.support.studies import call, short_options
from tests.support.tamperings import predict, reseal


@pytest.fixture(scope="module")
def made(tmp_path_factory, data_dir):
    """A folder with two seeds of cross-entropy and of CRM on it."""
    folder = tmp_path_factory.mktemp("made")
    call(compare, short_options(folder, data_dir, "ce,crm", "type-I", seeds=2))
    return folder


@pytest.fixture
def runs(made, tmp_path):
    return shutil.copytree(made / "runs", tmp_path / "runs")


@pytest.fixture
def claims(made, tmp_path):
    """The runs without predictions, as published records are."""
    return shutil.copytree(made / "runs", tmp_path / "claims", ignore=shutil.ignore_patterns("*.npz", "*.pt"))


def retrained(folder, data_dir, num=9):
    (report,) = verify([folder], data_dir, retrain=num)
    return report


def improve(run, scores, targets, shapes):
    """Give a run better predictions, in the form that is there, and the metrics and seal that follow."""
    scores[np.arange(len(targets)), targets] += 100.0 * (np.arange(len(targets)) % 9 > 0)
    predict(run, scores, targets, shapes.hierarchy("height"))
    reseal(run)


def first_run(folder, method):
    return next(run for run in Store(folder).runs() if spec_of(run)["method"]["name"] == method)


def test_a_sample_is_reproduced_with_what_it_re_ranks(runs, data_dir):
    again = [run for run in retrained(runs, data_dir, 1).runs if run.state == "retrained"]
    assert all(run.notes == ("trained again: bitwise the same",) for run in again)
    assert sorted(run.job.method.name for run in again) in (["ce"], ["ce", "crm"])
    assert len({run.job.seed for run in again}) == 1


def test_claims_become_retrained(claims, data_dir):
    assert retrained(claims, data_dir).counts()["retrained"] == 4


def test_without_its_request_no_run_is_trained_again(claims, data_dir):
    (claims / "requests.jsonl").unlink()
    with pytest.raises(UserError, match="no recorded request"):
        retrained(claims, data_dir, 1)


def test_without_its_data_no_run_is_trained_again(claims, tmp_path):
    with pytest.raises(UserError, match="can be trained again here"):
        retrained(claims, tmp_path / "none", 1)


def test_better_ranks_than_a_base_gives_are_found_by_training_alone(runs, claims, data_dir, shapes):
    crm = first_run(claims, "crm")
    scores, targets = predictions_of(Store(runs).run(crm.folder.name))
    improve(crm, scores, targets, shapes)
    write_compact(crm.folder, scores, targets, digest_of(crm, "predictions.npz"))
    report = retrained(claims, data_dir)
    (forged,) = [run for run in report.runs if run.rejected]
    assert forged.id == crm.folder.name and report.counts()["retrained"] == 3
    assert forged.findings[0].startswith("trained again in the same environment: top1 is ")


def test_better_predictions_are_found_by_training_alone(runs, data_dir, shapes):
    ce = first_run(runs, "ce")
    improve(ce, *predictions_of(ce), shapes)
    assert verify([runs], data_dir)[0].runs[0].state == "recomputed"
    report = retrained(runs, data_dir)
    forged = next(run for run in report.runs if run.id == ce.folder.name)
    assert any("trained again in the same environment: top1 is " in finding for finding in forged.findings)


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
