import importlib.util
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def shared():
    """Reference material that is not part of the project; without it the tests that need it are skipped."""
    folder = ROOT.parent / "shared"
    if not (folder / "oracles").is_dir():
        pytest.skip("no ../shared: the oracles, trees and photographs are not part of the project")
    return folder


@pytest.fixture(scope="session")
def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tests/reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def cifar100():
    from hierbench import Hierarchy

    return Hierarchy.read(ROOT / "benchmarks/hierarchies/cifar100.csv")


@pytest.fixture(autouse=True)
def _no_tracking_from_outside(monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "HIERBENCH_DATA"):
        monkeypatch.delenv(name, raising=False)


def pytest_collection_modifyitems(config, items):
    """Timings are run on demand: `pytest -m speed`."""
    if "speed" not in (config.option.markexpr or ""):
        keep = [item for item in items if item.get_closest_marker("speed") is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in keep])
        items[:] = keep


os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
