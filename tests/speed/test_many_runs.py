"""Tables, verification and sites of thousands of runs: time and memory are linear in runs."""

import subprocess
import sys
import time
import tracemalloc

import pytest

from hierbench.api.registry import find_method
from hierbench.config.options import RunSelection
from hierbench.config.recipe import load_recipe
from hierbench.data.datasets import shapes as drawn
from hierbench.data.prepare import prepare
from hierbench.execution.jobs import make_jobs
from hierbench.leaderboard.formats import TABLE_FORMATS, render
from hierbench.leaderboard.tables.board_table import board_table
from hierbench.sharing.site.build import build_site
from hierbench.sharing.verification.checked_board import checked_board
from hierbench.sharing.verification.verification import verify
from tests.support import many_runs
from tests.support import site_records as records

SIZES = (1000, 2000, 4000)
COMMAND = ("leaderboard", "--dataset", "shapes")
MOST = 1.3  # by how much the cost of a run may be larger among four times as many


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of a published table of so many runs, by their number; the smallest is for what happens once."""
    folders = {num: tmp_path_factory.mktemp(f"runs{num}") for num in (50, *SIZES)}
    for num, folder in folders.items():
        many_runs.make(folder / "shapes", num)
        records.write_table(folder, "shapes")
    time.sleep(1.0)  # what was just written is not kept as verified
    return folders


def table(folder):
    """Make a table in every format."""
    opened = checked_board("shapes", RunSelection(folder / "shapes", folder / "no-data"))
    assert not opened.report.num_rejected and sum(row.n for row in opened.board.rows) == len(opened.report.runs)
    for form in TABLE_FORMATS:
        render(board_table(opened.board), form)


def check(folder):
    """Verify all runs."""
    (report,) = verify([folder / "shapes"], folder / "no-data")
    assert report.counts()["recomputed"] == len(report.runs)


def site(folder):
    """Build a site."""
    files, (table,) = build_site(folder, folder.parent / f"{folder.name}-site", folder / "no-data")
    assert table.counts() == {"recomputed": len(table.runs)} and files > 8


@pytest.mark.speed
@pytest.mark.parametrize(
    ("function", "kept"),
    [(check, False), (table, False), (table, True), (site, False), (site, True)],
    ids=["verify", "first table", "kept table", "first site", "kept site"],
)
def test_time_and_memory_of_a_run_do_not_grow_with_their_number(folders, tmp_path, monkeypatch, function, kept):
    """From the predictions, and from what is kept of that."""
    monkeypatch.setenv("HIERBENCH_CACHE_DIR", str(tmp_path))
    seconds, peaks = {}, {}
    for num, folder in folders.items():
        if kept:
            check(folder)
        start = time.process_time()
        function(folder)
        seconds[num] = 1e3 * (time.process_time() - start) / num
    for num in SIZES[:2] if kept or function is check else ():
        tracemalloc.start()
        function(folders[num])
        peaks[num] = tracemalloc.get_traced_memory()[1] / num
        tracemalloc.stop()
    print(f"{function.__name__}: ms per run {seconds}, bytes per run {peaks}")
    assert seconds[1000] < 20 or function is not site  # asked
    assert seconds[SIZES[-1]] <= MOST * seconds[SIZES[0]], seconds
    assert not peaks or peaks[SIZES[1]] <= MOST * peaks[SIZES[0]], peaks


@pytest.mark.speed
def test_a_known_table_of_5000_runs(tmp_path):
    """In a new process, with the findings kept: asked are 3 s and 150 MB, and no PyTorch."""
    many_runs.make(tmp_path / "runs", 5000)
    time.sleep(1.0)
    spent = [spent_by(tmp_path, *COMMAND, "--runs", "runs", "--data-dir", "none") for _ in range(4)]  # one verifies
    print(f"\n5000 runs: {spent} (CPU seconds, peak in MB; asked: 3 and 150 from the second on)")
    assert min(seconds for seconds, _ in spent[1:]) <= 3.0 and max(peak for _, peak in spent[1:]) <= 150


@pytest.mark.speed
def test_a_cached_run_of_1000_jobs(tmp_path):
    """All jobs are done: planned, looked for, counted and shown."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawn, "PER_CLASS", {"train": 4, "val": 2, "test": 2})
        prepared = prepare("shapes", tmp_path / "data")
    short = [f"train.epochs={many_runs.EPOCHS}", "train.batch_size=96"]
    plan = make_jobs(load_recipe("shapes", short), prepared, [find_method("ce")], ["type-I"], 1000)
    data = {key: prepared.meta[key] for key in ("digest", "splits", "remark")}
    tree, (_, targets) = prepared.hierarchy("height"), prepared.arrays("test")
    many_runs.write(
        tmp_path / "runs", [job.spec for job in plan], tree, targets, data, "cross-entropy", "cross_entropy"
    )
    time.sleep(1.0)
    options = ["--methods", "ce", "--types", "type-I", "--seeds", "1000", "--mlflow", "off", "--device", "cpu"]
    options += [part for key in short for part in ("--set", key)]
    spent = [spent_by(tmp_path, "run", "--dataset", "shapes", *options) for _ in range(3)]
    print(f"\ncached run of 1000 jobs: {spent} (CPU seconds, peak in MB; asked: 8 s)")
    assert min(seconds for seconds, _ in spent) <= 8.0 and "| 1000 " in (tmp_path / "said").read_text()


# The peak of its own memory: that of `wait4` is at least that of the process which started it.
MEASURED = """
import resource, sys
from hierbench.cli.main import main
try:
    main()
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print("spent", used.ru_utime + used.ru_stime, int(peak) / 1e3)
"""


def spent_by(folder, *arguments):
    """Run a command in a new process; return its CPU seconds and peak memory in MB."""
    command = [sys.executable, "-c", MEASURED, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and "rejected" not in done.stderr, done.stderr
    (folder / "said").write_text(done.stdout)
    return tuple(map(float, done.stdout.split("spent ")[-1].split()))
