"""Derive tiny-imagenet.csv and imagenet1k.csv from WordNet 3.0.

Follow the first hypernym of each synset from the classes to the root, keep only those nodes and collapse every node
with a single child. Usage, with data.noun from Debian's package wordnet-base and a file of the classes' WordNet ids
(wnids.txt of Tiny ImageNet's archive, or the names of the 1,000 folders of ILSVRC2012's training images):

    python derive_from_wordnet.py /usr/share/wordnet/data.noun wnids.txt > tiny-imagenet.csv
"""

import csv
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path


def read_synsets(path: Path) -> dict[str, tuple[str, str | None]]:
    """Return {wnid: (first word, wnid of the first hypernym or None)} of a WordNet data file (see wndb(5WN))."""
    synsets = {}
    for line in path.read_text(encoding="ascii").splitlines():
        if line.startswith("  "):
            continue  # the licence at the top
        fields = line.split(" | ")[0].split()
        num_words = int(fields[3], 16)
        pointers = fields[4 + 2 * num_words + 1 :]
        hypernyms = [f"n{pointers[i + 1]}" for i in range(0, len(pointers), 4) if pointers[i] in ("@", "@i")]
        synsets[f"n{fields[0]}"] = (fields[4], hypernyms[0] if hypernyms else None)
    return synsets


def paths_to_root(classes: list[str], synsets: dict[str, tuple[str, str | None]]) -> dict[str, list[str]]:
    """Return {class: [coarsest, ..., class]} without the root and without nodes of a single child."""
    chains = {}
    for name in classes:
        chain: list[str] = []
        node: str | None = name
        while node is not None:
            chain.append(node)
            node = synsets[node][1]
        chains[name] = chain[::-1]
    children: dict[str, set[str]] = defaultdict(set)
    for chain in chains.values():
        for above, node in pairwise(chain):
            children[above].add(node)
    if above_another := sorted(chains.keys() & children.keys()):
        raise ValueError(f"{above_another[0]} is a class and lies above another class")
    branching = {name: [node for node in chain if len(children[node]) != 1] for name, chain in chains.items()}
    return {name: chain[1:] for name, chain in branching.items()}  # the first is the root


def main(data_noun: Path, wnids: Path) -> None:
    """Print the tree as paths, coarsest first; inner nodes carry their first word."""
    synsets = read_synsets(data_noun)
    classes = sorted(wnids.read_text(encoding="ascii").split())
    paths = paths_to_root(classes, synsets)
    width = max(map(len, paths.values()))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([f"level {level}" for level in range(1, width + 1)])
    for name in classes:
        inner = [f"{node} {synsets[node][0]}" for node in paths[name][:-1]]
        writer.writerow([*inner, name] + [""] * (width - len(inner) - 1))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
