"""Prepared data are compared with their digest before anything is trained on them, once per state of their files."""

import os
import shutil

import numpy as np
import pytest

from hierbench.data import prepared as data
from hierbench.execution.resources import Setting
from hierbench.execution.run_job import execute
from hierbench.runs.record_reader import read_record
from hierbench.utils.errors import UserError
from tests.support.jobs import plan_job


@pytest.fixture
def dataset(data_dir, tmp_path, monkeypatch):
    """A copy of `shapes` that this process has not checked."""
    monkeypatch.setattr(data, "verified_states", [])
    copied = tmp_path / "data/prepared/shapes"
    shutil.copytree(data_dir / "prepared/shapes", copied, ignore=shutil.ignore_patterns(data.CHECKED))
    return data.find("shapes", tmp_path / "data")


@pytest.fixture
def reads(monkeypatch):
    """A list that grows whenever a dataset is read whole."""
    seen, real = [], data.arrays_digest

    def digest(folder, *arguments, **options):
        seen.append(folder)
        return real(folder, *arguments, **options)

    monkeypatch.setattr(data, "arrays_digest", digest)
    return seen


def write_test_over_train(dataset):
    """Change the arrays in place; sizes and times stay."""
    path = dataset.folder / "train-images.npy"
    before = path.stat()
    images = np.load(path, mmap_mode="r+")
    tests, _ = dataset.arrays("test")
    images[: len(tests)] = tests
    images.flush()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_they_are_read_once_per_state_of_their_files(dataset, reads):
    shares = []
    data.check(dataset, shares.append)
    assert len(reads) == 1 and shares[-1] == 1.0 and shares == sorted(shares)
    data.check(dataset)
    data.verified_states.clear()  # as another process
    data.check(dataset)
    assert len(reads) == 1
    os.utime(dataset.folder / "val-labels.npy")
    data.verified_states.clear()
    data.check(dataset)
    assert len(reads) == 2


@pytest.mark.parametrize("checked_before", [False, True])
def test_arrays_that_were_changed_in_place_are_not_trained_on(dataset, tmp_path, checked_before):
    if checked_before:
        data.check(dataset)
    write_test_over_train(dataset)
    with pytest.raises(UserError, match="does not match its digest"):
        data.check(dataset)
    job, setting = (
        plan_job(dataset, "train.batch_size=96", "train.epochs=1"),
        Setting(tmp_path / "runs", tmp_path / "data"),
    )
    assert "does not match its digest" in execute(job, setting, lambda *_: None).error
    assert not (tmp_path / "runs" / job.id / "checkpoint.pt").exists()


def test_a_record_that_was_copied_with_the_data_says_nothing(dataset, tmp_path):
    data.check(dataset)
    write_test_over_train(dataset)
    shutil.copytree(dataset.folder, tmp_path / "sent/prepared/shapes")
    data.verified_states.clear()
    with pytest.raises(UserError, match="does not match its digest"):
        data.check(data.find("shapes", tmp_path / "sent"))


def test_labels_and_classes_count_as_images_do(dataset):
    data.check(dataset)
    labels = np.load(dataset.folder / "test-labels.npy")
    np.save(dataset.folder / "test-labels.npy", labels[::-1])
    with pytest.raises(UserError, match="does not match its digest"):
        data.check(dataset)


def test_data_changed_during_training_fails_the_job(dataset, tmp_path):
    job, setting = plan_job(dataset, "train.batch_size=96"), Setting(tmp_path / "runs", tmp_path / "data")
    changed = []

    def change(done, total):
        if done > 1.5 and not changed:
            changed.append(True)
            write_test_over_train(dataset)

    assert "does not match its digest" in execute(job, setting, change).error
    assert not read_record(setting.store.run(job.id).folder).done


def test_where_nothing_can_be_written_every_process_checks_for_itself(dataset, reads, tmp_path):
    link = tmp_path / "linked/prepared/shapes"
    link.parent.mkdir(parents=True)
    link.symlink_to(dataset.folder)  # the folder it leads to is not this data folder's to write
    for _ in range(2):
        data.check(data.find("shapes", tmp_path / "linked"))
    assert len(reads) == 1 and not (dataset.folder / data.CHECKED).exists()


@pytest.mark.parametrize("name", ["../shapes", "/etc", "..", ""])
def test_a_name_in_a_record_leads_nowhere(tmp_path, name):
    with pytest.raises(UserError, match="is not the name of a dataset"):
        data.find(name, tmp_path)
