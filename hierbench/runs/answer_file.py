"""The answers of a run: a derived result in its folder, small enough to publish.

A file `answers.npz` holds the node of each test example under each rule and a JSON text: the digest of the predictions
that they come from, the temperature, the fitted parameters, and what follows from all scores alone.

Shapes: N test examples, R rules.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hierbench.hierarchy.label_tree import IntArray
from hierbench.utils.arrays import read_arrays
from hierbench.utils.files import parse_json_object, refuse_links, write_atomically

ANSWERS_FILE = "answers.npz"
SCHEMA = 1
MAX_BYTES = 1 << 28  # of an unpacked array


@dataclass(frozen=True, eq=False)
class RunAnswers:
    """The answers of one run.

    Attributes:
        nodes: {label of a rule: [N] int64 nodes}.
        content: "predictions", the SHA-256 of predictions.npz; "calibration", of the temperature; "rules", {label:
            {"parameters", "area"}}; "levels" and "sets", lists of records.
    """

    nodes: Mapping[str, IntArray]
    content: Mapping[str, Any]

    @property
    def predictions(self) -> str:
        """The SHA-256 of the predictions that the answers come from."""
        return str(self.content["predictions"])


def write_answers(folder: Path, answers: RunAnswers) -> Path:
    """Write the answers of a run into its folder, and return the file's path."""
    table = np.stack(list(answers.nodes.values()), axis=1)
    text = json.dumps({**answers.content, "schema": SCHEMA, "labels": list(answers.nodes)}, allow_nan=False)
    nodes = table.astype(np.min_scalar_type(int(table.max(initial=0))))
    content = np.frombuffer(text.encode(), dtype=np.uint8)
    write_atomically(folder / ANSWERS_FILE, lambda file: np.savez_compressed(file, nodes=nodes, content=content))
    return folder / ANSWERS_FILE


def read_answers(folder: Path) -> RunAnswers:
    """Read the answers in a run's folder; an OSError or ValueError if they are missing or damaged."""
    file = refuse_links(folder.parent, folder.name) / ANSWERS_FILE
    arrays = read_arrays(file, follow=False, largest=MAX_BYTES)
    if arrays.keys() != {"nodes", "content"}:
        raise ValueError("it has other arrays than nodes and content")
    table = arrays["nodes"]
    text = arrays["content"]
    if text.dtype != np.uint8 or text.ndim != 1:
        raise ValueError("its content is no text")
    content = parse_json_object(text.tobytes().decode())
    labels = content.pop("labels", None)
    if content.get("schema") != SCHEMA or not isinstance(content.get("predictions"), str):
        raise ValueError("it is not of this version of hierbench")
    if not isinstance(labels, list) or table.ndim != 2 or table.shape[1] != len(labels) or table.dtype.kind != "u":
        raise ValueError("its nodes do not fit its rules")
    return RunAnswers({str(label): table[:, place].astype(np.int64) for place, label in enumerate(labels)}, content)
