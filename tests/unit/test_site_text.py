"""Text, links, citations, code and histories of a site, whatever strangers put into them."""

import html
import re
from pathlib import Path

from hierbench.runs.store import Run
from hierbench.sharing.card import LINK
from hierbench.sharing.site.citing import bibtex_of_method
from hierbench.sharing.site.methods import about_method, highlighted
from hierbench.sharing.site.names import Slugs, block, clean, slug_of
from hierbench.sharing.site.runs import curves_of
from tests import site_records as records

ROOT = Path(__file__).resolve().parents[2]


def test_only_addresses_of_the_web_are_links():
    assert all(map(LINK.fullmatch, ("https://example.org/a?b=c#d", "http://example.org", "http://localhost:8000/x")))
    others = ("javascript:alert(1)", "JAVASCRIPT://example.org/%0aalert(1)", "data:text/html,x", "//example.org", "")
    broken = ("https:///x", 'https://example.org/" onclick="x', "https://example.org/\u202e", "https://[::1")
    assert not any(map(LINK.fullmatch, (*others, *broken)))


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
    slugs = [slug_of(name) for name in names]
    assert slugs[0] == "plain" and len(set(map(str.lower, slugs))) == len(slugs)
    assert all(re.fullmatch("[a-z0-9_.-]{1,60}", slug) for slug in slugs)
    taken = Slugs()
    assert [taken.of("a"), taken.of("a"), taken.of("a-2")] == ["a", "a-2", "a-2-2"]


def test_citations_become_bibtex():
    entry = bibtex_of_method("hxe", "HXE", "Bertinetto et al., Making Better Mistakes, CVPR 2020, section 3.1")
    assert "@inproceedings{hxe2020," in entry and "author = {Bertinetto and others}" in entry
    assert "title = {Making Better Mistakes}" in entry and "booktitle = {CVPR}" in entry and "HXE: section 3.1" in entry
    comma = bibtex_of_method("f", "F", "Chang et al., Your Flamingo is My Bird: Fine-Grained, or Not, CVPR 2021; x")
    assert "title = {Your Flamingo is My Bird: Fine-Grained, or Not}" in comma
    hostile = bibtex_of_method(records.QUOTED, "}\n@x{", "}{\\input{/etc/passwd}")
    assert hostile.startswith("@misc{") and hostile.count("\n@") == 0
    assert r"\textbackslash{}input" in hostile and bibtex_of_method("a", "A", " ") == ""


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


def test_histories_are_drawn_whatever_is_in_them(tmp_path):
    def drawn(content, tested=None):
        (tmp_path / "history.csv").write_bytes(content)
        return curves_of(Run(tmp_path), tested)

    curves = drawn(b"epoch,lr_x,train_loss,val_top1\n1,1,2.5,nan\n2,1,inf,1e300\n3,1,2.0,nan\n4,1,1.5,40\n", tested=4)
    assert (curves[0].name, curves[0].first, curves[0].last) == ("train loss", 2.5, 1.5)
    assert "<circle" in str(curves[0].line) and len(curves) == 2
    many = drawn("".join(["epoch,train_loss\n", *(f"{i},{i}\n" for i in range(50_000))]).encode())
    assert len(str(many[0].line)) < 3000
    assert drawn(b"\xff\xfe\n1\n") == drawn(b"epoch,a\n1\n") == drawn(b"epoch,a\n1,x\n") == drawn(b"") == []
    assert curves_of(Run(tmp_path / "nothing"), None) == []
