"""Findings that are kept: they hold while nothing changes, are not trusted beyond that, and may be gone any time."""

import os
import sqlite3

import pytest

from hierbench.experiments.verification import alone, cache
from hierbench.experiments.verification.checked import checked_board
from hierbench.experiments.verification.inspection import inspect
from hierbench.runs.store import Store
from tests.many_runs import make


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Six runs; what was just written is kept too."""
    monkeypatch.setattr(cache, "SETTLED", -(10**12))
    make(tmp_path / "runs", 6, seeds=3)
    return tmp_path / "runs"


@pytest.fixture
def checked(monkeypatch):
    """The ids of the runs that were checked, in place of being read from the cache."""
    ids = []
    check = alone.Checks.check

    def counted(self, record, records):
        ids.append(record.finding.id)
        check(self, record, records)

    monkeypatch.setattr(alone.Checks, "check", counted)
    return ids


def verdicts(runs, data_dir=None, **options):
    records, rows = inspect(Store(runs), data_dir or runs / "no-data", "shapes", **options)
    assert not any(row.reasons for row in rows)
    return [(record.finding.id, record.finding.verdict, record.facts) for record in records]


def test_a_second_table_checks_nothing_and_finds_the_same(runs, checked):
    first = checked_board("shapes", Store(runs), runs / "no-data")
    assert len(checked) == 6 and first.report.counts()["recomputed"] == 6
    again = checked_board("shapes", Store(runs), runs / "no-data")
    assert len(checked) == 6 and again.board == first.board and again.report.as_json() == first.report.as_json()
    assert verdicts(runs, anew=True) == verdicts(runs) and len(checked) == 12


def test_a_file_with_its_times_restored_is_checked_again(runs, checked):
    before = verdicts(runs)
    checked.clear()
    path = runs / before[0][0] / "predictions.npz"
    found, content = path.stat(), bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (found.st_size, found.st_mtime_ns)
    after = verdicts(runs)
    assert checked == [before[0][0]] and after[0][1] == "rejected" and after[1:] == before[1:]


@pytest.mark.parametrize("what", ["program", "data", "added", "elsewhere"])
def test_what_a_finding_depends_on(runs, checked, monkeypatch, what):
    first = verdicts(runs)[0][0]
    checked.clear()
    if what == "program":
        monkeypatch.setattr(cache, "digest_of_program", lambda: "another")
    if what == "data":
        (runs / "no-data/prepared/shapes").mkdir(parents=True)
        (runs / "no-data/prepared/shapes/meta.json").write_text("{}")
    if what == "added":
        (runs / first / "tuning.json").write_text("{}")
    verdicts(runs, runs / "other" if what == "elsewhere" else None)
    assert len(checked) == (1 if what == "added" else 6)


def test_what_was_just_written_is_not_kept(runs, checked, monkeypatch):
    """Within one tick of the file system's clock it could change unseen."""
    monkeypatch.setattr(cache, "SETTLED", 10**12)
    verdicts(runs)
    verdicts(runs)
    assert len(checked) == 12


@pytest.mark.parametrize("damage", ["garbage", "rows", "writable", "folder"])
def test_without_a_sound_cache_all_is_checked(runs, checked, monkeypatch, damage):
    before = verdicts(runs)
    path = cache.cache_folder() / cache.FILE
    checked.clear()
    if damage == "garbage":
        path.write_bytes(b"x" * 5000)
    if damage == "rows":
        with sqlite3.connect(path) as database:
            database.execute("update findings set content = '{'")
        database.close()
    if damage == "writable":
        path.chmod(0o666)
    if damage == "folder":
        monkeypatch.setenv("HIERBENCH_CACHE_DIR", "/proc/nowhere")
    assert verdicts(runs) == before and len(checked) == 6
    assert verdicts(runs) == before and len(checked) == (6 if damage in ("garbage", "rows") else 12)


def test_the_users_folder_is_where_it_is_usual(monkeypatch, tmp_path):
    monkeypatch.delenv("HIERBENCH_CACHE_DIR")
    monkeypatch.setenv("HOME", str(tmp_path))
    for given, expected in ((str(tmp_path), "hierbench"), ("relative", ".cache/hierbench")):
        monkeypatch.setenv("XDG_CACHE_HOME", given)
        assert cache.cache_folder() == tmp_path / expected
