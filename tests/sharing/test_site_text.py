"""Received text and code on the pages of a site."""

import html
import re
from pathlib import Path

from hierbench.sharing.site.file_names import Slugs, block, clean, make_slug
from hierbench.sharing.site.method_pages import about_method, highlighted

ROOT = Path(__file__).resolve().parents[2]


def test_names_are_safe_text_and_safe_files():
    assert clean("a\u202eb\u200bc\nd") == "a\ufffdb\ufffdc d" and clean(5) == 5
    assert block("a\tb\n\x1b<") == "a   b\n\ufffd&lt;"
    names = [
        "plain",
        "Plain",
        "../../etc/passwd",
        "a/b",
        "",
        "CON",
        ".",
        "x" * 300,
        "\u202e",
        "n\u00e4her",
        "a b",
        "a-b",
    ]
    slugs = [make_slug(name) for name in names]
    assert slugs[0] == "plain" and len(set(map(str.lower, slugs))) == len(slugs)
    assert all(re.fullmatch("[a-z0-9_.-]{1,60}", slug) for slug in slugs)
    taken = Slugs()
    assert [taken.of("a"), taken.of("a"), taken.of("a-2")] == ["a", "a-2", "a-2-2"]


def test_a_method_is_read_and_never_run():
    text = (ROOT / "methods/haframe.py").read_text()
    about = about_method(text, "haframe")
    assert (about.title, about.types, about.base) == ("HAFrame", "type-II", "")
    name, _, default, bounds, _ = about.hyperparameters[0]
    assert (name, default, bounds) == ("alpha", "0.4", "≥ 0.0, ≤ 1.0")
    assert about_method((ROOT / "methods/hie.py").read_text(), "hie").base == "ce, _coarse_ce"
    for source in ("raise SystemExit(1)", "class X:\n    name = 'x'\n    title = exit()", "\0", "(" * 5000, "def"):
        assert about_method(source, "x").source == ""
        assert "<" not in str(highlighted(source)).replace("<span", "").replace("</span>", "")
    marked = str(highlighted("x = '<b>'  # </pre>\nif x: pass\n"))
    assert "<b>" not in marked and '<span class="k">if</span>' in marked
    assert '<span class="c1"># &lt;/pre&gt;</span>' in marked
    assert html.unescape(re.sub(r"</?span[^>]*>", "", str(highlighted(text)))) == text
