"""A disk that is full or read-only: one line, nothing torn, and the same command ends as if nothing had happened."""

import json
import re
import shutil
import subprocess
from hashlib import sha256

import pytest

from hierbench.training import trainer
from hierbench.utils import files
from hierbench.utils.errors import UserError
from tests.support.run_files import mirrored_in
from tests.support.short import SHORT

MiB = 1 << 20
FAST = (*SHORT, "--jobs", "1", "--seeds", "1", "--types", "type-I")
RUN = ("run", "--methods", "ce,crm", "--dataset", "shapes", *FAST)


class Disk:
    """A small file system of its own."""

    def __init__(self, path):
        self.path, self.filler = path, path / "filler"

    def fill(self, free=0):
        """Leave so many bytes free."""
        self.free()
        with self.filler.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(MiB)) == MiB:
                    pass
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
            file.truncate(file.tell() - free)

    def free(self):
        """Give all of it back."""
        self.filler.unlink(missing_ok=True)

    def lock(self, option="ro"):
        """Make it read-only, also while files are open: seen through another mount; or with "rw" writable again."""
        if option == "rw":
            subprocess.run(["umount", "-l", str(self.path)], check=True)
            return
        for options in (("--bind", str(self.path)), ("-o", "remount,bind,ro")):
            subprocess.run(["mount", *options, str(self.path)], check=True)

    def files(self):
        """Return its files."""
        return sorted(str(path.relative_to(self.path)) for path in self.path.rglob("*") if path.is_file())


@pytest.fixture
def disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "none", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting is not allowed here, and no other disk is small enough to be filled")
    yield Disk(place)
    while not subprocess.run(["umount", "-l", str(place)], capture_output=True).returncode:
        pass  # one mount over the other


@pytest.fixture(scope="module")
def undisturbed(cli, tmp_path_factory, data_dir):
    """The folder of runs of a command that nothing disturbed."""
    runs = tmp_path_factory.mktemp("whole") / "runs"
    cli(runs.parent, *RUN, "--mlflow", "off", "--data-dir", data_dir, "--runs", runs).ok()
    return runs


def assert_one_line(code, err):
    assert code in (1, 2) and "Traceback" not in err, err
    last = err.strip().splitlines()[-1]
    assert last.startswith(("hierbench: error:", "failed:")) and re.search(
        r"No space left|disk is full|Read-only", last
    )


def assert_nothing_torn(folder):
    for path in folder.rglob("*"):
        assert not path.name.endswith(".tmp"), path
        assert not path.is_file() or path.stat().st_size or path.name.startswith(".lock"), path
        if path.suffix == ".json":
            json.loads(path.read_text())


def fill_at(patch, disk, name, free):
    """Fill the disk when a file of this name is about to be written."""
    real, seen = files.temporary_beside, []

    def beside(path):
        if path.name == name or path.match(name):
            seen.append(path)
            disk.fill(free)
        return real(path)

    patch.setattr(files, "temporary_beside", beside)
    return seen


def same_results(runs, undisturbed):
    names = [path.relative_to(undisturbed) for path in undisturbed.rglob("*")]
    for name in names:
        if name.name in ("spec.json", "history.csv", "metrics.json", "predictions.npz") or name.suffix == ".md":
            assert (runs / name).read_bytes() == (undisturbed / name).read_bytes(), name


WRITES = (
    "spec.json", "status.json", "history.csv", "checkpoint.pt", "predictions.npz", "metrics.json", "environment.json",
    "leaderboard-shapes.json", "leaderboard-shapes.md",
)  # fmt: skip


@pytest.mark.parametrize("free", [0, 8192])
def test_every_write_of_a_run(disk, undisturbed, data_dir, cli, monkeypatch, free):
    """One folder: the disk is full at one file after the other, and given back each time."""
    runs = disk.path / "runs"
    command = (*RUN, "--mlflow", "off", "--data-dir", data_dir, "--runs", runs)
    for name in WRITES:
        with monkeypatch.context() as patch:
            seen = fill_at(patch, disk, name, free)
            code, _, err = cli(disk.path.parent, *command)
            assert seen, name
            if code or not free:  # a small file finds room
                assert_one_line(code, err)
            assert_nothing_torn(runs)
        disk.free()
    code, out, err = cli(disk.path.parent, *command)
    assert code == 0 and out.count("| 1 ") == 2, err
    same_results(runs, undisturbed)
    assert not list(runs.rglob("*.tmp"))


def test_a_folder_that_becomes_read_only(disk, data_dir, cli, monkeypatch):
    """Its run ends with one line and goes on when it can; its table is shown meanwhile."""
    runs, real = disk.path / "runs", trainer.validate
    command = (*RUN, "--mlflow", "off", "--data-dir", data_dir, "--runs", runs)

    def lock(*arguments):
        disk.lock()
        return real(*arguments)

    monkeypatch.setattr("hierbench.utils.lock.LEASE_SECONDS", 3.0)  # the lock that stays behind is of this very process
    with monkeypatch.context() as patch:
        patch.setattr(trainer, "validate", lock)
        code, out, err = cli(disk.path.parent, *command)
    assert out == "" and f"runs cannot be written to {runs}: Read-only file system" in err
    assert_one_line(code, err)
    disk.lock("rw")
    table = cli(disk.path.parent, *command).ok().out
    assert table.count("| 1 ") == 2 and not list(runs.rglob(".lock*"))
    disk.lock()
    shown = cli(disk.path.parent, "leaderboard", "--dataset", "shapes", "--runs", runs).ok()
    assert "| 1 " in shown.out and shown.err == ""
    again = cli(disk.path.parent, *command).ok()
    assert again.out == table and f"warning: runs cannot be written to {runs}: Read-only file system; the" in again.err


def test_mlflow_without_room_costs_a_warning(disk, undisturbed, data_dir, cli, monkeypatch):
    monkeypatch.setattr(cli, "copy_databases", False)
    runs = disk.path / "runs"
    shutil.copytree(undisturbed, runs)
    command = (*RUN, "--data-dir", data_dir, "--runs", runs)
    with monkeypatch.context() as patch:
        assert fill_at(patch, disk, "mlflow.db", 0) == []
        code, _, err = cli(disk.path.parent, *command)
    assert code == 0 and err.count("warning: MLflow") == 1 and "Traceback" not in err
    assert_nothing_torn(runs)
    disk.free()
    code, _, err = cli(disk.path.parent, *command)
    assert code == 0 and "warning" not in err
    assert [status for _, status in mirrored_in(runs / "mlflow.db")] == ["FINISHED"] * 2


OUTPUTS = {
    "table": ("leaderboard", "--dataset", "shapes", "--output", "DISK/table.md"),
    "published": ("publish", "--dataset", "shapes", "--output", "DISK/published"),
    "paper": ("ablate", "--dataset", "fgvc", "--numbers", "paper", "--output", "DISK/table.md"),
    "figure": ("plot", "tradeoff", "--dataset", "shapes", "--output", "DISK/figure.svg"),
    "raster": ("plot", "tradeoff", "--dataset", "shapes", "--output", "DISK/figure.png"),
    "page": ("report", "--dataset", "shapes", "--rows", "ce", "--output", "DISK/page.html"),
    "method": ("methods", "new", "mine", "--output", "DISK"),
    "runs": (*RUN, "--mlflow", "off", "--runs", "DISK/runs"),
    "search": ("tune", "--method", "haframe", "--dataset", "shapes", "--runs", "DISK/runs"),
    "drawn": ("data", "prepare", "shapes", "--data-dir", "DISK/data"),
    "unpacked": ("data", "prepare", "cifar100", "--source", "ARCHIVE", "--data-dir", "DISK/data"),
}
LONG = ("runs", "search")  # what they do on a good disk is tested elsewhere


@pytest.mark.parametrize("fault", ["full", "read-only"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_that_cannot_be_written(
    name, fault, disk, undisturbed, data_dir, miniatures, cli, monkeypatch, tmp_path
):
    from hierbench.data.datasets import shapes

    monkeypatch.setattr(shapes, "PER_CLASS", {"train": 2, "val": 1, "test": 1})
    if name == "unpacked":
        miniatures.cifar100(tmp_path / "cifar")
        with monkeypatch.context() as patch:
            patch.chdir(tmp_path / "cifar")
            subprocess.run(["tar", "czf", "../cifar-100-python.tar.gz", "cifar-100-python"], check=True)
    words = {"DISK": str(disk.path), "ARCHIVE": str(tmp_path / "cifar-100-python.tar.gz")}
    command = [re.sub("DISK|ARCHIVE", lambda word: words[word[0]], part) for part in OUTPUTS[name]]
    takes = {
        "leaderboard": ("--runs",),
        "plot": ("--runs",),
        **dict.fromkeys(("report", "publish"), ("--runs", "--data-dir")),
    }
    takes |= dict.fromkeys(("run", "tune"), ("--data-dir",))
    where = {"--runs": undisturbed, "--data-dir": data_dir}
    command += [part for option in takes.get(command[0], ()) for part in (option, where[option])]
    disk.fill() if fault == "full" else disk.lock()
    code, out, err = cli(disk.path.parent, *command)
    assert_one_line(code, err)
    assert out == "" and disk.files() == ["filler"] * (fault == "full")
    if name in LONG:
        return
    disk.free() if fault == "full" else disk.lock("rw")
    code, _, err = cli(disk.path.parent, *command)
    assert code == 0 and disk.files(), err


def test_a_download_without_room_keeps_nothing(disk, tmp_path):
    from hierbench.data.source import obtain_archive
    from hierbench.utils.download import Remote

    content = bytes(MiB)
    (tmp_path / "archive.zip").write_bytes(content)
    remote = Remote("the zip", (tmp_path / "archive.zip").as_uri(), sha256(content).hexdigest())
    arguments = (remote, disk.path / "downloads", "tiny-imagenet")
    disk.fill(free=65536)
    with pytest.raises(UserError, match="No space left"):
        obtain_archive(*arguments)
    assert disk.files() == ["filler"]
    disk.free()
    assert obtain_archive(*arguments).read_bytes() == content
