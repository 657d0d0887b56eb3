"""The site of three tables, one of them with names made to break out of HTML: as files, and in Chromium."""

import csv
import json
import re
import shlex
import zipfile
from pathlib import Path
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

import pytest

from hierbench.leaderboard.board import Board
from hierbench.leaderboard.formats import html
from hierbench.leaderboard.tables.board_table import board_table
from tests.support import browser
from tests.support import site_records as records
from tests.support.browser import js, press

ROOT = Path(__file__).resolve().parents[2]
TABLE = "tables/grocery-finetuned/"


@pytest.fixture(scope="module")
def site(cli, tmp_path_factory):
    """The site of three tables, by the command of docs/site.md."""
    folder = tmp_path_factory.mktemp("site")
    records.shipped(folder / "published", seeds=2)
    records.hostile_folder(folder / "published")
    line = re.search(r"^hierbench (site build .*)", (ROOT / "docs/site.md").read_text(encoding="utf-8"), re.M)[1]
    done = cli(folder, *shlex.split(line)).ok()
    assert not [page for page in (folder / "site").rglob("*.html") if str(folder) in page.read_text(encoding="utf-8")]
    assert re.fullmatch(r"wrote site/index\.html \(3 tables, \d+ files\)\n", done.out)
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site):
    return {path.relative_to(site).as_posix(): browser.Page(path) for path in sorted(site.rglob("*.html"))}


def test_there_is_a_page_of_each_kind(pages):
    tables = [name for name in pages if name.startswith("tables/")]
    methods = [name for name in pages if name.startswith("methods/")]
    answers = [name for name in tables if name.endswith("/answers.html")]
    assert len(tables) - len(answers) == 3 and len(answers) == 1 and "methods/haframe.html" in methods
    assert pages.keys() == {"index.html", *tables, *methods}


def test_names_of_strangers_are_text_wherever_they_are(pages):
    for name, page in pages.items():
        for tag, attributes in page.elements:
            assert not [key for key in attributes if key.startswith("on") or key == "style"], (name, tag, attributes)
            assert tag not in ("style", "iframe", "object", "embed", "base"), name
            if tag == "script":
                assert attributes["src"].endswith("tables.js") and "defer" in attributes
            if tag == "img":
                assert re.fullmatch(r"overview\.svg|(tables/[a-z0-9-]+/)?tradeoff\.svg|answers\.svg", attributes["src"])
        raw = page.path.read_text(encoding="utf-8")
        assert not re.search("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\x00-\x09\x0b-\x1f\x7f\ufeff]", raw), name
        policy = [a["content"] for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy"]
        assert len(policy) == 1 and "default-src 'none'" in policy[0] and "unsafe" not in policy[0]
    everything = "".join(part for page in pages.values() for part in page.text)
    for hostile in (records.BREAK_OUT, records.QUOTED, "{{ 7 * 7 }}{% raw %}", "</pre></style><svg/onload=alert(1)>"):
        assert hostile in everything


def test_links_are_relative_and_lead_somewhere(site, pages):
    outside = set()
    for name, page in pages.items():
        for tag, attributes in page.elements:
            for key in ("href", "src"):
                address = attributes.get(key)
                if address is None:
                    continue
                parts = urlsplit(address)
                if parts.scheme or parts.netloc:
                    assert tag == "a" and parts.scheme in ("http", "https") and "noopener" in attributes["rel"]
                    outside.add(address)
                    continue
                assert not address.startswith("/"), (name, address)
                target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
                assert target.is_file() and target.is_relative_to(site.resolve()), (name, address)
                if parts.fragment:
                    assert parts.fragment in pages[target.relative_to(site.resolve()).as_posix()].ids, (name, address)
    assert not outside


def test_the_table_page_agrees_with_the_records(site, pages):
    text = " ".join(" ".join(pages[f"{TABLE}index.html"].text).split())
    assert "6 rows under protocol paper" in text and "Differences from cross-entropy" in text
    rows = list(csv.DictReader((site / TABLE / "table.csv").read_text(encoding="utf-8").splitlines()))
    assert len(rows) == 6 and len(json.loads((site / TABLE / "table.json").read_text())["rows"]) == 6
    assert r"\begin{tabular}" in (site / TABLE / "table.tex").read_text(encoding="utf-8")


def test_pages_name_commands_and_code(pages):
    table = " ".join(pages[f"{TABLE}index.html"].text)
    command = "--seeds 2 --dataset grocery-finetuned --weights efficientnet-lite0-"
    assert command in table
    method = "".join(pages["methods/haframe.html"].text)
    assert "class HAFrame(Method):" in method and "Liang & Davis, ICCV 2023, equations 2 to 9" in method
    assert "≥ 0.1, ≤ 20.0" in method


def test_verify_accepts_the_archive(site, cli, tmp_path):
    with zipfile.ZipFile(site / TABLE / "records.zip") as archive:
        archive.extractall(tmp_path)
    done = cli(tmp_path, "verify", "grocery-finetuned", "--json").ok()
    (folder,) = json.loads(done.out)["folders"]
    assert folder["counts"]["recomputed"] == 12 and folder["rejected"] == 0


def test_the_picture_is_drawn_from_the_records(site):
    (hostile,) = [path for path in (site / "tables").iterdir() if path.name.startswith("img-src")]
    assert [path.name for path in hostile.glob("*.svg")] == ["tradeoff.svg"]  # which is code in the published folder
    for path in site.glob("tables/*/*.svg"):
        elements = list(ElementTree.parse(path).iter())
        assert not {element.tag.rpartition("}")[2] for element in elements} & {"script", "a", "foreignObject"}
        assert not [name for element in elements for name in element.attrib if name.startswith("on")]


# In the browser.


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture(scope="module")
def kinds(site):
    """A page of each kind, hostile where there is one."""
    hostile = next(path for path in (site / "tables").iterdir() if path.name.startswith("img-src"))
    named = [site / "index.html", site / "methods/haframe.html", hostile / "index.html", site / TABLE / "index.html"]
    return [*named, *sorted(site.glob("methods/*script*.html"))[:1]]


@pytest.mark.parametrize("half", [0, 1])
def test_pages_load_without_errors_and_are_accessible(chromium, kinds, site, half):
    """No message, no request but for own files, nothing of a stranger's runs, and axe-core has nothing to say."""
    schemes = [(path, ("light", "dark")[number % 2]) for number, path in enumerate(kinds)]
    schemes.append((kinds[3], "dark" if schemes[3][1] == "light" else "light"))  # the table in both
    for path, scheme in schemes[half::2]:
        page = browser.show(chromium, path.as_uri(), scheme=scheme)
        assert page.get_log("browser") == [], path
        requested = browser.requests(page)
        assert path.as_uri() in requested and all(url.startswith(site.as_uri()) for url in requested), requested
        assert js(page, "window.ran") is None
        assert browser.violations(page) == [], (path, scheme)
        ground = js(page, "getComputedStyle(document.documentElement).backgroundColor")
        assert (int(re.search(r"\d+", ground)[0]) < 64) == (scheme == "dark")


def test_columns_of_text_are_left_in_a_notebook(chromium, tmp_path):
    """Jupyter aligns every cell to the right."""
    jupyter = "<style>.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th { text-align: right; }</style>"
    table = html.notebook(board_table(Board.paper("fgvc")))
    (tmp_path / "cell.html").write_text(f'{jupyter}<div class="jp-RenderedHTMLCommon">{table}</div>', encoding="utf-8")
    page = browser.show(chromium, (tmp_path / "cell.html").as_uri())
    sides = "[...document.querySelectorAll('tr:nth-child(1) > *')].map((cell) => getComputedStyle(cell).textAlign)"
    assert js(page, sides) == 2 * [*2 * ["left"], *5 * ["right"], "left"]


def test_the_policy_blocks_foreign_content_of_the_site(chromium, site):
    page = browser.show(chromium, (site / "index.html").as_uri())
    js(
        page,
        "document.body.insertAdjacentHTML('beforeend', arguments[0])",
        "<img src=x onerror='alert(1)' style='top:0'>",
    )
    tried = page.execute_async_script(
        "fetch('http://127.0.0.1:9/').then(() => 'fetched', () => 'refused').then(arguments[0])"
    )
    messages = " ".join(entry["message"] for entry in page.get_log("browser"))
    assert tried == "refused" and js(page, "window.ran") is None
    for kind in ("script-src", "style-src", "default-src"):
        assert kind in messages, messages


def test_narrow_pages_do_not_scroll_sideways(chromium, kinds):
    for path in kinds:
        page = browser.show(chromium, path.as_uri(), width=320)
        wide = "[...document.querySelectorAll('main *')].filter((e) => e.getBoundingClientRect().right > 321)"
        beyond = js(page, f"{wide}.filter((e) => !e.closest('.scroll, pre')).map((e) => e.outerHTML.slice(0, 80))")
        assert (beyond, js(page, "document.documentElement.scrollWidth") <= 320) == ([], True), path
    board = "document.querySelector('.scroll')"
    browser.show(chromium, kinds[3].as_uri(), width=320)
    assert js(chromium, f"{board}.scrollWidth > {board}.clientWidth")  # the table scrolls within
    assert browser.violations(chromium) == []


def column(page, place):
    rows = f"[...document.querySelector('.board').tBodies[0].rows].map((row) => row.cells[{place}].innerText)"
    return [text.strip().split("\n")[0] for text in js(page, rows)]


def numbers(page, place):
    return [float(re.match(r"[\d.]+", text)[0]) for text in column(page, place) if text != "–"]


def test_a_column_is_sorted_by_click_and_by_keyboard(chromium, site):
    from selenium.webdriver.common.keys import Keys

    page = browser.show(chromium, (site / TABLE / "index.html").as_uri())
    heads = page.find_elements("css selector", ".board thead th")
    before = numbers(page, 2)
    page.find_elements("css selector", ".board thead button")[2].click()
    assert numbers(page, 2) == sorted(before, reverse=True) and heads[2].get_attribute("aria-sort") == "descending"
    press(page, Keys.SPACE)  # the button has the focus
    assert numbers(page, 2) == sorted(before) and heads[2].get_attribute("aria-sort") == "ascending"
    press(page, Keys.TAB, Keys.ENTER)
    assert numbers(page, 3) == sorted(numbers(page, 3)) and heads[3].get_attribute("aria-sort") == "ascending"
    assert heads[2].get_attribute("aria-sort") is None
    assert js(page, "getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(page, Keys.SHIFT + Keys.TAB)
    page.find_elements("css selector", ".board thead button")[1].click()
    names = [name.removesuffix(" ★") for name in column(page, 1)]
    assert names == sorted(names, key=str.casefold)


def test_the_keyboard_skips_to_the_content(chromium, site):
    from selenium.webdriver.common.keys import Keys

    page = browser.show(chromium, (site / "index.html").as_uri())
    press(page, Keys.TAB)
    link = page.switch_to.active_element
    assert link.text == "Skip to the content" and link.rect["x"] >= 0
    press(page, Keys.ENTER)
    assert js(page, "document.activeElement.id") == "main"


def test_without_scripts_the_table_is_whole_and_has_no_controls(chromium, site):
    url = (site / TABLE / "index.html").as_uri()
    browser.show(chromium, url, scripts=False)
    try:
        assert len(chromium.find_element("css selector", ".board").find_elements("css selector", "tbody tr")) == 6
        assert not chromium.find_elements("css selector", ".board button")
    finally:
        browser.show(chromium, "about:blank")


def test_print_has_no_controls(chromium, site):
    page = browser.show(chromium, (site / TABLE / "index.html").as_uri(), width=1000)
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert js(page, "getComputedStyle(document.querySelector('.downloads')).display") == "none"
    assert js(page, "getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    assert js(page, "document.documentElement.scrollWidth") <= 1000
