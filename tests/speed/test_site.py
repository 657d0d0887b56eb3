"""A site of a thousand runs in under 20 s, of thousands in linear time and memory: `pytest -m speed -s`."""

import time
import tracemalloc

import pytest

from hierbench.experiments.site.build import build_site
from tests import site_records as records

SIZES = (1000, 2000, 4000)
MOST = 1.3  # by how much the cost of a run may be larger among more of them


@pytest.fixture(scope="module")
def folders(many_runs, tmp_path_factory):
    """Folders of a published table of so many runs with predictions, by their number; the first is for imports."""
    folders = {num: tmp_path_factory.mktemp(f"runs{num}") for num in (50, *SIZES)}
    for num, folder in folders.items():
        many_runs.make(folder / "shapes", num)
        records.write_table(folder, "shapes")
    return folders


def build(folder):
    files, (table,) = build_site(folder, folder.parent / f"{folder.name}-site", "Many", "", folder / "no-data")
    assert table.counts() == {"recomputed": len(table.runs)} and files > len(table.runs)


@pytest.mark.speed
def test_time_and_memory_are_linear_in_runs(folders):
    """Every run is verified from its predictions, and then from what is kept of that."""
    first, again, peaks = {}, {}, {}
    for num, folder in folders.items():
        for seconds in (first, again):
            start = time.process_time()
            build(folder)
            seconds[num] = time.process_time() - start
    for num in SIZES[:2]:
        tracemalloc.start()
        build(folders[num])
        peaks[num] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    print(f"\nseconds of a processor: {first}; again: {again}; bytes: {peaks}")
    assert first[1000] < 20  # asked
    for cost in (first, again):
        assert cost[4000] / 4000 <= MOST * cost[1000] / 1000, cost
    assert peaks[2000] / 2000 <= MOST * peaks[1000] / 1000, peaks
