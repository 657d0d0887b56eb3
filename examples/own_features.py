"""Features of your own: three methods on vectors in a file, without images, a network or a GPU.

    uv run python examples/own_features.py

In place of the vectors of CLIP or any other network, it draws random ones around a taxonomy. It writes `features.npz`,
`taxonomy.csv` and `birds.toml`, and trains 15 heads, within a minute, all in a temporary folder. docs/your-features.md
has the real thing.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import hierbench

TAXONOMY = """\
order,family,species
owls,true owls,tawny owl
owls,true owls,eagle owl
owls,barn owls,barn owl
songbirds,finches,chaffinch
songbirds,finches,goldfinch
songbirds,tits,great tit
songbirds,tits,blue tit
songbirds,crows,magpie
"""
DIMENSIONS, SIZES = 16, {"train": 60, "val": 20, "test": 100}  # features, and rows per class of each split

folder = Path(tempfile.gettempdir(), "hierbench-examples")
folder.mkdir(exist_ok=True)
os.chdir(folder)
rng = np.random.default_rng(0)
paths = [line.split(",") for line in TAXONOMY.splitlines()[1:]]
centres = np.zeros((len(paths), DIMENSIONS))
for level in range(3):  # classes that share a node share its vector
    place_by_node = {path[level]: rng.normal(size=DIMENSIONS) * 0.6**level for path in paths}
    centres += np.stack([place_by_node[path[level]] for path in paths])

arrays = {"classes": np.array([path[-1] for path in paths])}
for split, per_class in SIZES.items():
    labels = np.repeat(np.arange(len(paths)), per_class)
    noise = 0.8 * rng.normal(size=(len(labels), DIMENSIONS))
    arrays |= {split: (centres[labels] + noise).astype("float32"), f"{split}_labels": labels}  # [N, D] and [N]
np.savez("features.npz", **arrays)
Path("taxonomy.csv").write_text(TAXONOMY, encoding="utf-8")

if not Path("birds.toml").exists():  # a recipe: its rates and epochs can be edited
    command = ["data", "new", "birds", "--features", "features.npz", "--tree", "taxonomy.csv"]
    subprocess.run([sys.executable, "-m", "hierbench", *command], check=True)

board = hierbench.run(["ce", "crm", "haframe"], "./birds.toml", seeds=3, set={"train.epochs": 20}, mlflow="off")
print(board)
print(board.compare("ce"))  # every row minus cross-entropy of its type, with intervals and p
board.plot("tradeoff").savefig("tradeoff.svg")
print(f"\nwrote tradeoff.svg in {folder}: accuracy against mistake severity")
