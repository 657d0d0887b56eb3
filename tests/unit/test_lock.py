"""The lock of a run's folder: one owner at a time, whoever is killed or stopped, whatever the clock says."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

import hierbench.utils.lock as locking
from hierbench.utils.files import remove_abandoned
from hierbench.utils.lock import Holder, Lock, LostError, Watch, holders

FIGHTERS, TURNS = 8, 40


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def quick(monkeypatch):
    """Sign of life every 10 ms; dead after 100 ms without."""
    monkeypatch.setattr(locking, "BEAT", 0.01)
    monkeypatch.setattr(locking, "LIMIT", 0.1)


def child(code, *arguments):
    """Start a program that says a line when it is ready."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready"
    return process


HOLD = """
import sys, time
from pathlib import Path
import hierbench.utils.lock as locking
locking.BEAT = 0.01
lock = locking.Lock.acquire(Path(sys.argv[1]))
assert lock is not None
print("ready", flush=True)
time.sleep(100)
"""


@pytest.fixture
def holder(tmp_path):
    process = child(HOLD, tmp_path)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_one_owner_at_a_time_and_release(tmp_path):
    lock = Lock.acquire(tmp_path)
    lock.check()
    assert Lock.acquire(tmp_path) is None
    other = Lock.acquire(tmp_path, "mirror")  # another lock
    other.release(remove=True)
    lock.release()
    again = Lock.acquire(tmp_path)
    assert again.path.name == ".lock.2"
    with pytest.raises(LostError):
        lock.check()
    again.release(remove=True)
    assert names(tmp_path) == []


def test_who_has_it(tmp_path):
    lock = Lock.acquire(tmp_path)
    assert str(holders(tmp_path)[0]) == f"process {os.getpid()} on {os.uname().nodename}"
    lock.release()
    assert holders(tmp_path)[0].is_over


def test_a_dead_owner_is_taken_over_at_once(tmp_path, holder):
    assert Lock.acquire(tmp_path) is None and Watch(tmp_path).busy() is not None
    holder.kill()  # not waited for: a zombie is dead, too
    start = time.monotonic()
    while (lock := Lock.acquire(tmp_path)) is None:
        assert time.monotonic() - start < 5
    assert names(tmp_path) == [".lock.2"]
    lock.release(remove=True)


def pretend(folder, beat="1", **changes):
    """Write the lock of a living process, this one, but for some changes."""
    owner = json.dumps({"token": "x", **locking.this_process(), **changes})
    (folder / ".lock.1").write_text(f"{beat:<20}\n{owner}\n")


def test_a_process_number_that_was_given_again_is_another_process(tmp_path):
    pretend(tmp_path)
    assert Watch(tmp_path).busy() is not None
    pretend(tmp_path, start="1")
    assert Watch(tmp_path).busy() is None


@pytest.mark.parametrize("key", ["host", "boot", "namespace"])
def test_an_owner_on_another_machine_counts_as_dead_only_without_a_sign_of_life(tmp_path, quick, key):
    pretend(tmp_path, **{key: "other"}, pid=2**22 + 1)
    watch = Watch(tmp_path)
    for beat in range(30):  # longer than the limit
        pretend(tmp_path, beat=str(beat), **{key: "other"}, pid=2**22 + 1)
        assert watch.busy() is not None and not watch.dead
        time.sleep(0.01)
    start = time.monotonic()
    while watch.busy() is not None:
        time.sleep(0.005)
    assert time.monotonic() - start > 0.07  # the last look was before `start`
    assert Lock.acquire(tmp_path) is None  # who has not watched does not know it
    lock = Lock.acquire(tmp_path, dead=watch.dead)
    assert lock.path.name == ".lock.2"
    lock.release(remove=True)


def test_an_owner_that_beats_again_is_not_taken_over(tmp_path, quick):
    pretend(tmp_path, host="other")
    watch = Watch(tmp_path)
    while watch.busy() is not None:
        time.sleep(0.005)
    pretend(tmp_path, beat="2", host="other")
    assert Lock.acquire(tmp_path, dead=watch.dead) is None


def test_a_file_that_says_nothing_yet_is_an_owner_until_the_limit(tmp_path, quick):
    (tmp_path / ".lock.7").touch()
    watch = Watch(tmp_path)
    assert str(watch.busy()) == "another process"
    time.sleep(0.05)
    while watch.busy() is not None:
        time.sleep(0.005)
    Lock.acquire(tmp_path, dead=watch.dead).release(remove=True)
    assert names(tmp_path) == []


def test_a_waiter_that_was_stopped_itself_has_seen_nothing(tmp_path, quick):
    pretend(tmp_path, host="other")
    watch = Watch(tmp_path)
    watch.busy()
    time.sleep(0.3)
    assert watch.busy() is not None


def test_an_owner_that_was_stopped_is_taken_over_and_notices(tmp_path, quick):
    code = HOLD.replace(
        "time.sleep(100)", "input()\ntry:\n    lock.check()\nexcept locking.LostError as e:\n    print(e)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().strip() == "ready"
    watch = Watch(tmp_path)
    time.sleep(0.1)
    assert watch.busy() is not None
    os.kill(process.pid, signal.SIGSTOP)
    while watch.busy() is not None:
        time.sleep(0.005)
    lock = Lock.acquire(tmp_path, dead=watch.dead)
    os.kill(process.pid, signal.SIGCONT)
    out, _ = process.communicate("\n", timeout=30)
    assert out.startswith(f"process {os.getpid()} on ") and "took over while this process stood still" in out
    lock.check()
    lock.release(remove=True)
    assert names(tmp_path) == []  # the other did not bring its file back


def test_a_lock_that_was_removed_is_noticed_and_does_not_come_back(tmp_path, quick):
    lock = Lock.acquire(tmp_path)
    lock.path.unlink()
    time.sleep(0.05)
    with pytest.raises(LostError, match="has been removed"):
        lock.check()
    lock.release()
    assert names(tmp_path) == []


@pytest.mark.parametrize("days", [-1, 1])
def test_the_clock_does_not_matter(tmp_path, quick, monkeypatch, days):
    real = time.time
    lock = Lock.acquire(tmp_path)
    watch = Watch(tmp_path)
    monkeypatch.setattr(time, "time", lambda: real() + days * 86400)
    for _ in range(20):
        if lock.path.exists():
            os.utime(lock.path, (real() + days * 86400,) * 2)
        assert watch.busy() is not None
        time.sleep(0.01)
    lock.check()
    lock.release()
    assert watch.busy() is None


def test_what_was_judged_is_looked_at_again_once_the_file_is_made(tmp_path, monkeypatch):
    """Between judging generation 1 dead and making 2, others had 2, freed it, and began again at 1."""
    pretend(tmp_path, start="1")
    judged = holders(tmp_path)
    pretend(tmp_path, token="of another")
    real = locking.holders
    monkeypatch.setattr(locking, "holders", lambda *_: judged)
    assert Lock.acquire(tmp_path) is None
    monkeypatch.setattr(locking, "holders", real)
    assert names(tmp_path) == [".lock.1"]  # the living one's, untouched


def test_what_one_left_that_was_killed_on_its_way_is_no_way_past_the_owner(tmp_path, quick):
    """Some process judged by history, made generation 7, and was killed before it looked again."""
    living = Lock.acquire(tmp_path)
    mine = living.path.read_text()
    pretend(tmp_path, start="1")  # gone
    (tmp_path / ".lock.7").write_text(living.path.read_text())
    living.path.write_text(mine)
    assert Lock.acquire(tmp_path) is None
    assert Watch(tmp_path).busy() is not None
    living.check()  # what lies above it has not taken it over
    living.release()
    after = Lock.acquire(tmp_path)
    assert after.path.name == ".lock.8" and names(tmp_path) == [".lock.8"]
    after.release(remove=True)


def test_a_file_system_without_hard_links(tmp_path, monkeypatch):
    def no_links(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(locking.os, "link", no_links)
    lock = Lock.acquire(tmp_path)
    lock.check()
    assert Lock.acquire(tmp_path) is None
    lock.release()
    Lock.acquire(tmp_path).release(remove=True)
    assert names(tmp_path) == []


def test_a_full_disk_leaves_no_lock(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(locking.os, "pwrite", full)
        with pytest.raises(OSError, match="No space left"):
            Lock.acquire(tmp_path)
    assert names(tmp_path) == []


def test_threads_end_with_their_locks(tmp_path):
    before = threading.active_count()
    lock = Lock.acquire(tmp_path)
    assert threading.active_count() == before + 1
    lock.release()
    assert threading.active_count() == before


def fight(folder, counter, inside, seed):
    """Add one to a counter, with the lock, in a way that shows when two do it at once; half the time never let go."""
    chance = random.Random(seed)
    while True:
        lock = Lock.acquire(folder)
        if lock is None:
            time.sleep(0.0005)
            continue
        here = inside.with_name(f"inside-{os.getpid()}")
        here.write_text(json.dumps(locking.this_process()))
        try:
            os.link(here, inside)
        except FileExistsError:  # left by one that was killed, or of one that is in here now
            if not locking.owner_is_gone(json.loads(inside.read_text())):
                (folder / "two at once").write_text(inside.read_text())
            here.replace(inside)
        value = int(counter.read_text())
        time.sleep(chance.choice([0, 0.001]))
        counter.with_name(f"counter-{os.getpid()}").write_text(str(value + 1))
        lock.check()
        counter.with_name(f"counter-{os.getpid()}").replace(counter)
        inside.unlink()
        lock.release(remove=chance.random() < 0.5)
        with (folder.parent / f"turns-{seed}").open("a") as file:
            file.write(f"{value + 1}\n")


def test_eight_processes_and_random_kills(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    counter, inside = tmp_path / "counter", tmp_path / "inside"
    counter.write_text("0")
    context = multiprocessing.get_context("fork")
    chance = random.Random(0)
    fighters = {}

    def start(seed):
        fighters[seed] = context.Process(target=fight, args=(folder, counter, inside, seed), daemon=True)
        fighters[seed].start()

    for seed in range(FIGHTERS):
        start(seed)
    kills, end = 0, time.monotonic() + 60
    while (kills < 25 or int(counter.read_text()) < TURNS * FIGHTERS) and time.monotonic() < end:
        time.sleep(0.05)
        if kills < 25:
            seed = chance.choice(sorted(fighters))
            fighters[seed].kill()
            fighters.pop(seed).join()
            kills += 1
            start(FIGHTERS + kills)
    for process in fighters.values():
        process.kill()
        process.join()
    total = int(counter.read_text())
    turns = [int(line) for path in tmp_path.glob("turns-*") for line in path.read_text().split()]
    assert kills == 25 and total >= TURNS * FIGHTERS
    assert not (folder / "two at once").exists(), (folder / "two at once").read_text()
    assert len(turns) == len(set(turns))  # no two have seen the same count
    assert total - kills - FIGHTERS <= len(turns) <= total  # those killed after counting have not written it down
    Lock.acquire(folder).release(remove=True)
    remove_abandoned(folder)
    assert names(folder) == []


def test_a_holder_says_nothing_of_a_torn_file():
    assert not Holder(__file__, "1", '{"pid": 3').is_over
    assert not Holder(__file__, "1", '{"pid": "x"}').is_over
