"""Waiting for processes, and methods that say where they run and how far they are, and wait for a file `hold` to go."""

import time

METHOD = """
import json, os, signal, sys, time
from pathlib import Path
import torch.nn.functional as F
from torch import nn
import hierbench
from hierbench import Method

FOLDER = Path({folder!r})


class Waiting(Method):
    name, title, source = {name!r}, {name!r}, "a test"
    steps = 0

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)

    def forward(self, features):
        return self.classifier(features)

    def loss(self, outputs, targets):
        Waiting.steps += 1
        if self.name == "deadly":
            os.kill(os.getpid(), signal.SIGKILL)
        place = [os.getpid(), sys.executable, hierbench.__file__, os.environ.get("PYTHONPATH")]
        (FOLDER / f"place-here.json").write_text(json.dumps(place))
        with (FOLDER / "steps").open("a") as file:
            file.write("x")
        while Waiting.steps > {first} and (FOLDER / "hold").exists():
            time.sleep(0.05)
        return {{"cross_entropy": F.cross_entropy(outputs, targets)}}

    def scores(self, outputs):
        return outputs
"""


def write_method(folder, name, first=0):
    """Write FOLDER/NAME.py, whose training waits after so many steps."""
    (folder / f"{name}.py").write_text(METHOD.format(folder=str(folder), name=name, first=first))


def wait_for(condition, seconds=120):
    """Return when a condition holds; fail after so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
