"""Publishing: records and table are of one board, however many publish at once and whenever one is killed."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hierbench.leaderboard import publish
from hierbench.leaderboard.board import board_from_runs
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/tiny-imagenet-frozen"


def boards(folder):
    """Two boards of the same rows with other seeds."""
    found = []
    for half in range(2):
        runs = folder / f"runs-{half}"
        for path in PUBLISHED.glob("*/spec.json"):
            if (json.loads(path.read_text())["seed"] == 0) == (half == 0):
                shutil.copytree(path.parent, runs / path.parent.name)
        found.append((board_from_runs("tiny-imagenet-frozen", Store(runs)), Store(runs)))
    return found


def is_of_one_board(folder):
    """Whether the records are those of the table's rows, and of the bases of these that are no rows."""
    table = json.loads((folder / "tiny-imagenet-frozen.json").read_text())
    shown = {run for row in table["rows"] for run in row["runs"]}
    specs = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("tiny-imagenet-frozen/*/spec.json")}
    bases = {base for spec in specs.values() if isinstance(spec["base"], list) for base in spec["base"]}
    return shown <= specs.keys() and specs.keys() - shown <= bases


def test_of_two_at_once_one_is_published_and_the_other_told(tmp_path, monkeypatch):
    both, target, refused = boards(tmp_path), tmp_path / "published", []
    meet = threading.Barrier(2, timeout=1.0)

    def slow(board):
        try:
            meet.wait()  # both are here at the same time, unless one of them waits for the other
        except threading.BrokenBarrierError:
            pass
        return publish_json(board)

    publish_json = publish.as_json
    monkeypatch.setattr(publish, "as_json", slow)

    def run(board, store):
        try:
            publish.publish_board(board, store, target)
        except UserError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=run, args=each) for each in both]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert is_of_one_board(target)
    (reason,) = refused
    assert "exists; move it away to publish again" in reason
    assert sorted(path.name for path in target.iterdir()) == [
        "tiny-imagenet-frozen",
        "tiny-imagenet-frozen.json",
        "tiny-imagenet-frozen.md",
    ]


KILLED = """
import sys
from pathlib import Path
from hierbench.leaderboard.board import board_from_runs
from hierbench.leaderboard.publish import publish_board
from hierbench.runs.store import Store
import os
def killer(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith(sys.argv[3]):
        os.kill(os.getpid(), 9)
sys.addaudithook(killer)
store = Store(Path(sys.argv[1]))
publish_board(board_from_runs("tiny-imagenet-frozen", store), store, Path(sys.argv[2]))
"""


@pytest.mark.parametrize(
    "at", ["tiny-imagenet-frozen.json", "tiny-imagenet-frozen.md", "published/tiny-imagenet-frozen", "metrics.json"]
)
def test_a_kill_leaves_no_records_or_all_and_the_next_publishes(tmp_path, at):
    (_, first), (board, store) = boards(tmp_path)
    target = tmp_path / "published"
    command = [sys.executable, "-c", KILLED, str(first.root), str(target), at]
    assert subprocess.run(command).returncode == -9
    assert not (target / "tiny-imagenet-frozen").exists()
    publish.publish_board(board, store, target)
    assert is_of_one_board(target)
    assert len(os.listdir(target)) == 3


def test_a_link_in_the_place_of_the_records_is_not_followed(tmp_path):
    (board, store), _ = boards(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "published").mkdir()
    (tmp_path / "published/tiny-imagenet-frozen").symlink_to(tmp_path / "outside")
    with pytest.raises(UserError, match="is a symbolic link"):
        publish.publish_board(board, store, tmp_path / "published")
    assert not list((tmp_path / "outside").iterdir())
