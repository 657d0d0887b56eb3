"""The doctor of trees: what looks like a slip in the names of nodes, and what can be mended mechanically.

A finding is shown, never repaired in silence: `fix` mends what a user asks for, `accept` takes a finding as meant.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from hierbench.hierarchy.node_paths import NodePath
from hierbench.utils.errors import Argument, InputError, unknown_name
from hierbench.utils.text import counted, one_line

Kind = Literal["parents", "placeholders", "case", "spelling", "chains", "blanks"]
Paths = Mapping[str, NodePath]
KINDS: tuple[Kind, ...] = get_args(Kind)
FIXES = ("case", "fill", "placeholders")  # "fill" is of a table's cells, see `TreeOptions.fills`
TEXTS: dict[Kind, tuple[str, str]] = {  # what is counted, and of which kind
    "parents": ("name", "of nodes under several parents"),
    "placeholders": ("node", "named by a placeholder"),
    "case": ("pair", "of names that differ in case or blanks alone"),
    "spelling": ("pair", "of names on one level that differ in a letter"),
    "chains": ("level", "on which every node is an only child"),
    "blanks": ("row", "without the coarsest level"),
}
PLACEHOLDER = re.compile(
    r"\?+|unknown.*|#?n/?a|null|none|incert\w+ sedis|unidentified.*|unspecified|undetermined|others?|misc\w*|unassigned"
    r"|.*\b(sp|spp)\.?",
    re.IGNORECASE,
)
LEAST_LETTERS = 6  # of names whose spellings are compared
MOST_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """What looks like a slip: its kind, how often, and examples."""

    kind: Kind
    number: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        """Return it in a line."""
        shown = "; ".join(one_line(example, 100) for example in self.examples[:MOST_EXAMPLES])
        noun, text = TEXTS[self.kind]
        return f"{self.kind}: {counted(self.number, noun)} {text}, as {shown}"


def find_slips(paths: Paths, num_blanks: int = 0, accepted: Collection[str] = ()) -> list[Finding]:
    """Return what looks like a slip in {class: path}, but for kinds that are accepted.

    Args:
        paths: of the classes.
        num_blanks: classes whose coarsest cell is missing.
        accepted: kinds.

    Raises:
        UserError: an accepted kind is unknown.
    """
    _check_kinds("accepted finding", accepted, KINDS)
    parents: dict[str, dict[str, None]] = {}
    levels: list[dict[str, None]] = []
    for path in paths.values():
        for level, (above, name) in enumerate(zip(("the root", *path), path, strict=False)):
            if above != name:  # a family and its one variant
                parents.setdefault(name, {})[above] = None
            if level == len(levels):
                levels.append({})
            levels[level][name] = None
    several = [f"{name!r} below {' and '.join(map(repr, above))}" for name, above in parents.items() if len(above) > 1]
    placeholders = [repr(name) for name in parents if PLACEHOLDER.fullmatch(name)]
    case = [f"{first!r} and {name!r}" for first, name in case_pairs(parents)]
    spelling = [f"{near!r} and {name!r}" for names in levels for near, name in near_spellings(names)]
    nodes = [{path[: level + 1] for path in paths.values() if len(path) > level} for level in range(len(levels))]
    chains = [
        f"level {level + 1}, {len(below):,} nodes"
        for level, (above, below) in enumerate(pairwise(nodes), start=1)
        if len(above) == len(below) == len({path[:-1] for path in below})
    ]
    examples_of: dict[Kind, list[str]] = {
        "parents": several, "placeholders": placeholders, "case": case, "spelling": spelling, "chains": chains,
    }  # fmt: skip
    findings = [Finding(kind, len(examples), tuple(examples[:MOST_EXAMPLES])) for kind, examples in examples_of.items()]
    findings.append(Finding("blanks", num_blanks, ("a missing cell, NA or -",)))
    return [finding for finding in findings if finding.number and finding.kind not in accepted]


def _check_kinds(subject: str, kinds: Iterable[str], choices: Collection[str]) -> None:
    for kind in kinds:
        if kind not in choices:
            raise unknown_name(subject, kind, choices)


def case_pairs(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return all names that differ from an earlier one in case or blanks alone, each with the first of its kind."""
    seen: dict[str, str] = {}
    pairs = [(seen.setdefault("".join(name.casefold().split()), name), name) for name in names]
    return [(first, name) for first, name in pairs if first != name]


def near_spellings(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of names of six letters and more that one edit, or two swapped letters, tell apart.

    Names that differ in a digit, or in case alone, are no such pair. Two names that are one edit apart are equal after
    one letter of each or of the longer one is left out, so only names with such a form in common are compared.
    """
    by_form: dict[str, list[str]] = {}
    pairs: dict[tuple[str, str], None] = {}
    for name in names:
        text = name.casefold()
        if sum(map(str.isalpha, text)) < LEAST_LETTERS:
            continue
        for form in {text, *(text[:i] + text[i + 1 :] for i in range(len(text)))}:
            for near in by_form.setdefault(form, []):
                if _is_edit(near.casefold(), text):
                    pairs[near, name] = None
            by_form[form].append(name)
    return list(pairs)


def _is_edit(text: str, near: str) -> bool:
    """Whether one letter that is inserted, left out or exchanged, or two that are swapped, tell two texts apart."""
    start = _num_equal(text, near)
    end = _num_equal(text[start:][::-1], near[start:][::-1])
    letters = text[start : len(text) - end]
    exchanged = near[start : len(near) - end]
    if not letters + exchanged or not (letters + exchanged).isalpha():
        return False
    is_swap = len(letters) == 2 and letters == exchanged[::-1]
    return is_swap or max(len(letters), len(exchanged)) == 1


def _num_equal(text: str, near: str) -> int:
    """Return the length of the beginning that two texts have in common."""
    pairs = zip(text, near, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(text), len(near)))


def mend(paths: Paths, fixes: Collection[str]) -> tuple[dict[str, NodePath], list[str]]:
    """Return {class: path} with slips of some kinds mended, and how often each was, in words.

    "case" writes names that differ in case or blanks as the commonest of them; "placeholders" leaves out nodes above
    the classes that a placeholder names.

    Raises:
        UserError: a fix is unknown, or two classes would have one name.
    """
    _check_kinds("fix", fixes, FIXES)
    mended = dict(paths)
    notes = list[str]()
    if "case" in fixes:
        common = Counter(name for path in mended.values() for name in path)
        pairs = case_pairs(sorted(common, key=lambda name: -common[name]))
        written = {name: first for first, name in pairs}
        changed = [tuple(written.get(name, name) for name in path) for path in mended.values()]
        if len({path[-1] for path in changed}) < len(changed):
            fix = Argument("fix", "case")
            raise InputError(f"{fix}: two classes differ in case or blanks alone; merge them in the file", fix)
        notes.append(f"{counted(len(pairs), 'name')} written as others that differ in case or blanks")
        mended = {path[-1]: path for path in changed}
    if "placeholders" in fixes:
        kept = {
            leaf: (*(name for name in path[:-1] if not PLACEHOLDER.fullmatch(name)), leaf)
            for leaf, path in mended.items()
        }
        notes.append(f"placeholders left out above {sum(kept[leaf] != mended[leaf] for leaf in mended):,} classes")
        mended = kept
    return mended, notes
