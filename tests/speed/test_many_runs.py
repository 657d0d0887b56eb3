"""Tables and verification of thousands of runs: time and memory are linear in runs."""

import time
import tracemalloc

import pytest

from hierbench.experiments.verification.checked import checked_board
from hierbench.experiments.verification.verify import verify
from hierbench.leaderboard.render import FORMATS
from hierbench.runs.store import Store

SIZES = (1000, 2000, 4000)
MOST = 1.3  # by how much the cost of a run may be larger among four times as many


@pytest.fixture(scope="module")
def folders(many_runs, tmp_path_factory):
    """Folders of so many runs, by their number; the smallest is for what happens once."""
    folders = {num: tmp_path_factory.mktemp(f"runs{num}") / "runs" for num in (50, *SIZES)}
    for num, folder in folders.items():
        many_runs.make(folder, num)
    time.sleep(1.0)  # what was just written is not kept as verified
    return folders


def table(folder):
    """Make a table in every format."""
    board, report = checked_board("shapes", Store(folder), folder / "no-data")
    assert not report.num_rejected and sum(row.n for row in board.rows) == len(report.runs)
    for write in FORMATS.values():
        write(board)


def check(folder):
    """Verify all runs."""
    (report,) = verify([folder], folder / "no-data")
    assert report.counts()["recomputed"] == len(report.runs)


@pytest.mark.speed
@pytest.mark.parametrize(
    ("what", "before"), [(check, None), (table, None), (table, check)], ids=["verify", "first", "kept"]
)
def test_time_and_memory_of_a_run_do_not_grow_with_their_number(folders, what, before):
    seconds, peaks = {}, {}
    for num, folder in folders.items():
        if before:
            before(folder)
        start = time.process_time()
        what(folder)
        seconds[num] = (time.process_time() - start) / num
    if what is table and before is None:
        assert seconds[SIZES[-1]] <= MOST * seconds[SIZES[0]], seconds
        return  # by now it is kept
    for num in SIZES[:2]:
        tracemalloc.start()
        what(folders[num])
        peaks[num] = tracemalloc.get_traced_memory()[1] / num
        tracemalloc.stop()
    print(f"{what.__name__}: ms per run {seconds}, bytes per run {peaks}")
    assert seconds[SIZES[-1]] <= MOST * seconds[SIZES[0]], seconds
    assert peaks[SIZES[1]] <= MOST * peaks[SIZES[0]], peaks
