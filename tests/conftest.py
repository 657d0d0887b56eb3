import gc
import importlib.util
import json
import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest
from filelock import FileLock
from hypothesis import HealthCheck, settings

from hierbench.runs.run_archive import opened

ROOT = Path(__file__).resolve().parents[1]
if sys.dont_write_bytecode:
    # Without it, each of the hundreds of processes that the tests start compiles all of PyTorch's sources again, which
    # takes longer than importing it. Apart from the packages, as whoever forbids bytecode wants none beside sources.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / ".pytest_cache/bytecode")
    os.environ |= {"PYTHONPYCACHEPREFIX": sys.pycache_prefix}
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# The files that take longest, in this order: at the end, one of them would leave the other processes idle.
LONGEST = [
    "test_ray",
    "test_pages",
    "test_commands",
    "test_prepare",
    "test_split_lists",
    "test_paper_datasets",
    "test_tune_command",
    "test_ranks",
    "test_classifier",
    "test_tuning",
    "test_foreign_methods",
    "test_frozen",
    "test_concurrent_runs",
    "test_job",
    "test_golden",
    "test_your_data",
]


def pytest_xdist_auto_num_workers(config):
    """Three processes for the whole suite, which often waits for programs to start; none for a part of it."""
    is_whole_suite = not config.option.markexpr and not config.option.keyword and config.args == ["tests"]
    return 3 if is_whole_suite else 0


def pytest_configure(config):
    """Let the threads of one process give way to those of the other; fewer examples of a property by default.

    Ctrl-C has its usual meaning, also where the tests run in the background of a script, which ignores it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    fuzzed = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]
    for name, examples in (("quick", 25), ("thorough", 60)):  # without a deadline, as the machine may be loaded
        settings.register_profile(name, max_examples=examples, deadline=None, suppress_health_check=fuzzed)
    settings.load_profile("thorough" if config.option.thorough else "quick")


def pytest_collection_finish():
    """What the tests and their modules are made of stays to the end: the garbage collector need not look at it."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_unconfigure():
    """Let it take all apart at the end: a library that counts what is left would print that."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def shared():
    """Reference material that is not part of the project; without it the tests that need it are skipped."""
    folder = ROOT.parent / "shared"
    if not (folder / "oracles").is_dir():
        pytest.skip("no ../shared: the oracles, trees and photographs are not part of the project")
    return folder


@pytest.fixture(scope="session")
def cli(tmp_path_factory):
    """Runs the command line: `cli(folder, "run", ...)` gives its exit code, output and errors; see command_line.py."""
    commands = _load("support/command_line").CommandLine(tmp_path_factory.mktemp("databases"))
    yield commands
    commands.close()


def _load(path):
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / f"tests/{path}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def page(cli, miniatures, tmp_path_factory):
    """Runs a page of the documentation, once: `page("docs/tour.md")` gives its folder and what its lines said."""
    return _load("support/pages").Pages(
        cli,
        tmp_path_factory.mktemp,
        {"docs/your-data.md": miniatures.birds, "docs/your-features.md": miniatures.features},
    )


@pytest.fixture(scope="session")
def reference():
    return _load("support/reference")


@pytest.fixture(scope="session")
def miniatures():
    return _load("support/miniatures")


@pytest.fixture(scope="session")
def made_runs():
    return _load("support/made_runs")


@pytest.fixture(scope="session")
def copied():
    """Copies published runs, which tests may change: `copied(folder, lambda spec: ...)` those whose spec is taken."""

    def copy(folder, takes):
        published = opened(ROOT / "leaderboard/published/grocery-finetuned")
        for path in published.glob("*/spec.json"):
            if takes(json.loads(path.read_text())):
                shutil.copytree(path.parent, folder / path.parent.name)
        shutil.copy(published / "targets.npy", folder)
        return folder

    return copy


@pytest.fixture
def without_torch(cli, tmp_path):
    """Runs a command in a process of its own, where it may not import PyTorch or MLflow, as `cli.real`."""
    code = (
        "import sys\n"
        "from hierbench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert end.code == 0, end.code\n"
        "assert not {'torch', 'mlflow'} & set(sys.modules)\n"
    )
    return lambda *words: cli.real(tmp_path, *words, python=("-c", code)).ok()


@pytest.fixture(scope="session")
def tamperings():
    return _load("support/tamperings")


@pytest.fixture(scope="session")
def cifar100():
    from hierbench import Hierarchy

    return Hierarchy.read(ROOT / "benchmarks/hierarchies/cifar100.csv")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch, tmp_path_factory):
    """No test sees findings that another has kept."""
    monkeypatch.setenv("HIERBENCH_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _no_tracking_from_outside(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def pytest_addoption(parser):
    parser.addoption("--thorough", action="store_true", help="Also run the longer variants of scenarios, as CI does.")


def pytest_collection_modifyitems(config, items):
    """What takes long is run on demand: `--thorough`, `-m speed`, `-m soak`, `-m fidelity`; the slowest files begin."""
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))
    requested = {*(config.option.markexpr or "").split(), *(["thorough"] if config.option.thorough else [])}
    for marker in {"speed", "soak", "fidelity", "thorough"} - requested:
        keep = [item for item in items if item.get_closest_marker(marker) is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in keep])
        items[:] = keep


os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")


def _prepare_shapes(folder, **per_class):
    from hierbench.data.datasets import shapes
    from hierbench.data.prepare import prepare

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapes, "PER_CLASS", per_class)
        prepare("shapes", folder)
    return folder


@pytest.fixture(scope="session")
def data_dir(tmp_path_factory):
    """Folder with a tenth of `shapes` prepared: 480 training, 96 validation and 192 test images."""
    return _prepare_shapes(tmp_path_factory.mktemp("data"), train=10, val=2, test=4)


@pytest.fixture(scope="session")
def small_data_dir(tmp_path_factory):
    """The same with 240, 48 and 96, for tests that train again and again."""
    return _prepare_shapes(tmp_path_factory.mktemp("small-data"), train=5, val=1, test=2)


@pytest.fixture(scope="session")
def shapes(data_dir):
    from hierbench.data.prepared import find

    return find("shapes", data_dir)


@pytest.fixture(scope="session")
def small_shapes(small_data_dir):
    from hierbench.data.prepared import find

    return find("shapes", small_data_dir)


@pytest.fixture(scope="session")
def targets():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tests/tools/fuzz")
        return _load("tools/fuzz/targets")


@pytest.fixture(scope="session")
def once(tmp_path_factory):
    """`once(name, build)`: a folder that one process of this session builds for all; nobody may change it."""
    place = tmp_path_factory.getbasetemp()
    place = place.parent if "PYTEST_XDIST_WORKER" in os.environ else place

    def folder(name, build):
        with FileLock(place / f"{name}.lock"):
            if not (place / name).exists():
                (place / f"{name}-making").mkdir()
                build(place / f"{name}-making")
                (place / f"{name}-making").rename(place / name)
        return place / name

    return folder


@pytest.fixture(scope="session")
def trained(cli, data_dir, once, tmp_path_factory):
    """A runs folder of ce, crm and flamingo, type-I, seeds 0 to 2, on `data_dir`; copy what you change."""
    options = ("--dataset", "shapes", "--types", "type-I", "--seeds", "3", "--jobs", "1", "--mlflow", "off")
    short = ("--set", "train.epochs=2", "--set", "train.batch_size=96", "--data-dir", data_dir)

    def build(folder):
        cli(folder, "run", "--methods", "ce,crm,flamingo", *options, *short).ok()
        for path in folder.glob("runs/*/checkpoint.pt"):
            path.unlink()

    return shutil.copytree(once("trained", build) / "runs", tmp_path_factory.mktemp("trained") / "runs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, data_dir):
    """A folder of one file of tests, with prepared `shapes`."""
    folder = tmp_path_factory.mktemp("work")
    shutil.copytree(data_dir, folder / "data")
    return folder


@pytest.fixture(scope="module")
def trained_folder(trained, folder):
    """The same with the runs of `trained`."""
    shutil.copytree(trained, folder / "runs")
    return folder


@pytest.fixture
def little_memory():
    """Two gigabytes of address space above the current use."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + (2 << 30), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
