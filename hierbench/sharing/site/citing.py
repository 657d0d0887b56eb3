"""BibTeX of a table and of the methods in it."""

import re
from collections.abc import Iterable, Sequence

from hierbench.leaderboard.formats.latex import SPECIAL
from hierbench.sharing.site.names import slug_of
from hierbench.utils.text import one_line

# "Authors, Title, VENUE YEAR" or "Authors, VENUE YEAR", with anything after it.
CITATION = re.compile(
    r"(?P<authors>[^,;:]+), (?:(?P<title>[^;]+?), )?(?P<venue>[A-Z][A-Za-z]*) (?P<year>(?:19|20)\d\d)\b(?P<rest>.*)"
)

# Of the paper that this project starts from, which its methods cite without a title.
PAPER = "Inducing Neural Collapse to a Fixed Hierarchy-Aware Frame for Reducing Mistake Severity"
TITLES = {"Liang and Davis ICCV 2023": PAPER}


def escaped(text: str) -> str:
    """Return one line of text for a field; letters of any alphabet stay, which biber and new BibTeX styles read."""
    return "".join(SPECIAL.get(char, char) for char in one_line(text))


def entry(kind: str, key: str, fields: Iterable[tuple[str, str]]) -> str:
    """Return a BibTeX entry; fields without a value are left out."""
    lines = [f"  {name} = {{{value}}}" for name, value in fields if value]
    return f"@{kind}{{{_key(key)},\n" + ",\n".join(lines) + "\n}\n"


def _key(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9:_-]+", "-", slug_of(text.lower())).strip("-") or "entry"


def bibtex_of_method(name: str, title: str, source: str) -> str:
    """Return the entry of a method from the citation that its file declares, "" without one."""
    if not source.strip():
        return ""
    found = CITATION.match(source)
    if found is None:
        return entry("misc", name, [("title", escaped(title)), ("note", escaped(source))])
    authors = re.sub(r"\s+et al\.?$", " and others", found["authors"]).replace(" & ", " and ")
    title_of_paper = found["title"] or TITLES.get(f"{authors} {found['venue']} {found['year']}", "")
    rest = found["rest"].strip(" ,;:")
    return entry(
        "inproceedings",
        f"{name}{found['year']}",
        [
            ("author", escaped(authors)),
            ("title", escaped(title_of_paper)),
            ("booktitle", escaped(found["venue"])),
            ("year", found["year"]),
            ("note", escaped(f"{title}: {rest}" if rest else title)),
        ],
    )


def bibtex_of_table(dataset: str, protocol: str, *, authors: Sequence[str], year: str, runs: int, link: str) -> str:
    """Return the entry of a table."""
    return entry(
        "misc",
        f"hierbench-{dataset}",
        [
            ("author", escaped(" and ".join(authors)) or "{hierbench}"),
            ("title", escaped(f"Hierarchy-aware classifiers on {dataset}: a leaderboard")),
            ("year", year),
            ("howpublished", f"\\url{{{link}}}" if link and not re.search(r"[{}\\%#^~]", link) else ""),
            ("note", escaped(f"protocol {protocol}, {runs} runs, made with hierbench")),
        ],
    )
