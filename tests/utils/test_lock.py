"""The lock of a run's folder: one owner at a time, in spite of kills, stops and clocks."""

import multiprocessing
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time

import pytest

import hierbench.utils.lock as locking
from hierbench.utils.lock import Lock, LostError

FIGHTERS = 8


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def quick(monkeypatch):
    """Sign of life every 10 ms; dead after 100 ms without."""
    monkeypatch.setattr(locking, "BEAT", 0.01)
    monkeypatch.setattr(locking, "LEASE_SECONDS", 0.1)


def child(code, *arguments):
    """Start a program that says a line when it is ready."""
    process = subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline().strip() == "ready"
    return process


HOLD = """
import sys, time
from pathlib import Path
import hierbench.utils.lock as locking
locking.BEAT, locking.LEASE_SECONDS = {beat}, {limit}
lock = locking.Lock(Path(sys.argv[1]))
assert lock.acquire()
print("ready", flush=True)
{rest}
"""


@pytest.fixture
def holder(tmp_path):
    """A process that has the lock, with the limits that a user meets."""
    process = child(HOLD.format(beat=locking.BEAT, limit=locking.LEASE_SECONDS, rest="time.sleep(100)"), tmp_path)
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


def test_one_owner_at_a_time_and_release(tmp_path):
    lock, again, threads = Lock(tmp_path), Lock(tmp_path), threading.active_count()
    assert again.holder() is None and names(tmp_path) == []
    assert lock.acquire() and threading.active_count() == threads + 1
    lock.check()
    assert not again.acquire() and again.holder() == f"process {os.getpid()} on {os.uname().nodename}"
    with Lock(tmp_path, "mirror"):  # another lock
        pass
    lock.release()
    assert again.acquire()
    with pytest.raises(LostError):
        lock.check()
    lock.release()  # does nothing: another has it
    again.check()
    again.release()
    assert names(tmp_path) == [] and threading.active_count() == threads


@pytest.mark.parametrize("exchange", [True, False], ids=["local", "as on NFS"])
def test_a_dead_owner_is_taken_over_at_once(tmp_path, holder, monkeypatch, exchange):
    if not exchange:
        cannot_exchange(monkeypatch)
    lock = Lock(tmp_path)
    assert lock.holder() is not None and not lock.acquire()
    holder.kill()  # not waited for: a zombie is dead, too
    until(lock.acquire)
    assert names(tmp_path) == [".lock"]
    lock.check()
    lock.release()
    assert names(tmp_path) == []


def patch_filelock(monkeypatch, name, value):
    """Replace a name in each module of filelock that has it: where it is differs between versions."""
    modules = [module for path, module in sys.modules.items() if path.split(".")[0] == "filelock"]
    modules = [module for module in modules if name in vars(module)]
    assert modules, name
    for module in modules:
        monkeypatch.setattr(module, name, value)


def cannot_exchange(monkeypatch):
    """As file systems on servers, which refuse to exchange two names."""
    patch_filelock(monkeypatch, "exchange_names", lambda *_: False)


def pretend(folder, beat=0, **changes):
    """Leave the lock of a living process, this one, but for some changes."""
    path = folder / ".lock"
    if not path.exists():
        with Lock(folder):
            text = path.read_text()
        for key, value in changes.items():
            text = re.sub(f"(?m)^{key}=.*", f"{key}={value}", text)
        path.write_text(text)
    os.utime(path, ns=(beat, beat))


@pytest.mark.parametrize("exchange", [True, False], ids=["local", "as on NFS"])
@pytest.mark.parametrize("host", ["other", os.uname().nodename + "?pidns-1"], ids=["machine", "container"])
def test_an_owner_elsewhere_counts_as_dead_only_without_a_sign_of_life(tmp_path, quick, monkeypatch, host, exchange):
    if not exchange:
        cannot_exchange(monkeypatch)
    lock = Lock(tmp_path)
    for beat in range(30):  # longer than the limit
        pretend(tmp_path, beat, host=host, pid=2**22 + 1)
        assert lock.holder() is not None
        time.sleep(0.01)
    start = time.monotonic()
    assert not Lock(tmp_path).acquire()  # who has not watched does not know it
    until(lambda: lock.holder() is None)
    assert time.monotonic() - start > 0.07  # the last look was before `start`
    assert lock.acquire()
    lock.release()
    assert names(tmp_path) == []


@pytest.mark.parametrize("content", ["", "filelock/2\n", "nonsense", "filelock/2\npid=1\nhost=x\nmode=new\n"])
def test_a_file_that_says_nothing_yet_is_an_owner_until_the_limit(tmp_path, quick, monkeypatch, content):
    """A process was killed, or the power failed, before it had written who it is; or a later version wrote it."""
    patch_filelock(monkeypatch, "MALFORMED_LOCK_AGE_THRESHOLD", 0.1)  # seconds; 2 otherwise
    (tmp_path / ".lock").write_text(content)
    lock = Lock(tmp_path)
    assert lock.holder() in ("another process", "process 1 on x")
    time.sleep(0.05)
    until(lambda: lock.holder() is None)
    assert lock.acquire()
    lock.release()
    assert names(tmp_path) == []


def test_a_waiter_that_was_stopped_itself_has_seen_nothing(tmp_path, quick):
    pretend(tmp_path, host="other")
    lock = Lock(tmp_path)
    assert lock.holder() is not None
    time.sleep(0.3)
    assert lock.holder() is not None


def test_an_owner_that_was_stopped_is_taken_over_and_notices(tmp_path, quick):
    rest = "input()\ntry:\n    lock.check()\nexcept locking.LostError as e:\n    print(e)"
    code = HOLD.format(beat=0.01, limit=0.1, rest=rest)
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline().strip() == "ready"
    lock = Lock(tmp_path)
    os.kill(process.pid, signal.SIGSTOP)
    until(lock.acquire)
    os.kill(process.pid, signal.SIGCONT)
    out, _ = process.communicate("\n", timeout=120)
    assert out.startswith(f"process {os.getpid()} on ") and "took over while this process was stopped" in out
    lock.check()
    lock.release()
    assert names(tmp_path) == []  # the other did not bring its file back


def test_a_lock_that_was_removed_is_noticed_and_does_not_come_back(tmp_path, quick):
    lock = Lock(tmp_path)
    assert lock.acquire()
    lock.path.unlink()
    time.sleep(0.05)
    with pytest.raises(LostError, match="has been removed"):
        lock.check()
    lock.release()
    assert names(tmp_path) == []


@pytest.mark.parametrize("days", [-1, 1])
def test_the_clock_does_not_matter(tmp_path, monkeypatch, days):
    monkeypatch.setattr(locking, "BEAT", 0.02)
    monkeypatch.setattr(locking, "LEASE_SECONDS", 1.0)
    real = time.time
    lock, waiter = Lock(tmp_path), Lock(tmp_path)
    assert lock.acquire()
    monkeypatch.setattr(time, "time", lambda: real() + days * 86400)
    for _ in range(20):
        os.utime(lock.path, (real() + days * 86400,) * 2)
        assert waiter.holder() is not None
        time.sleep(0.01)
    lock.check()
    lock.release()
    assert waiter.holder() is None


def test_a_full_disk_leaves_no_lock(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch_filelock(patch, "write_all", full)
        with pytest.raises(OSError, match="No space left"):
            Lock(tmp_path).acquire()
    assert names(tmp_path) == []


def fight(folder, counter, seed):
    """Add one to a counter, with the lock: two that do it at once have seen the same number."""
    chance = random.Random(seed)
    while True:
        lock = Lock(folder)
        while not lock.acquire():
            time.sleep(0.0005)
        value = int(counter.read_text())
        time.sleep(chance.choice([0, 0.001]))
        counter.with_name(f"counter-{os.getpid()}").write_text(str(value + 1))
        lock.check()
        counter.with_name(f"counter-{os.getpid()}").replace(counter)
        lock.release()
        with (folder.parent / f"turns-{seed}").open("a") as file:
            file.write(f"{value + 1}\n")


def test_eight_processes_and_random_kills(tmp_path, monkeypatch, request):
    num_kills, num_turns = (12, 20) if request.config.option.thorough else (6, 8)
    monkeypatch.setattr(locking, "LEASE_SECONDS", 10.0)  # of one that was killed before it had written who it is
    folder = tmp_path / "run"
    folder.mkdir()
    counter = tmp_path / "counter"
    counter.write_text("0")
    context = multiprocessing.get_context("fork")
    chance = random.Random(0)
    fighters = {}

    def start(seed):
        fighters[seed] = context.Process(target=fight, args=(folder, counter, seed), daemon=True)
        fighters[seed].start()

    for seed in range(FIGHTERS):
        start(seed)
    kills, end = 0, time.monotonic() + 120
    while (kills < num_kills or int(counter.read_text()) < num_turns * FIGHTERS) and time.monotonic() < end:
        time.sleep(0.05)
        if kills < num_kills:
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
    assert kills == num_kills and total >= num_turns * FIGHTERS
    assert len(turns) == len(set(turns))  # no two have seen the same count
    assert total - kills - FIGHTERS <= len(turns) <= total  # those killed after counting have not written it down
    lock = Lock(folder)
    until(lock.acquire, 20)
    lock.release()
    assert names(folder) == []
