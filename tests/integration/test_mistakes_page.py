"""The page of `hierbench mistakes` in headless Chromium, against the numbers it was made from."""

import numpy as np
import pytest

from hierbench.figures.mistakes.mistakes_page import render
from hierbench.figures.mistakes.pair import choose, read_pair
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.selection import named_run
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from tests.support import browser as in_browser
from tests.support import mistake_runs
from tests.support.browser import js, press
from tests.support.mistake_runs import HOSTILE, MARKUP


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    work = tmp_path_factory.mktemp("mistakes")
    prepared = mistake_runs.prepare(work / "data", per_class=50, size=40)
    _, labels = prepared.arrays("test")
    store = Store(work / "runs")
    for seed, (method, kind) in enumerate([("ce", "type-I"), ("haframe", "type-II")]):
        scores = mistake_runs.random_scores(labels, len(mistake_runs.PATHS), seed)
        mistake_runs.store_run(store, prepared, method, kind, scores, labels)
    a, b = (named_run(name, Board.of("shapes", read_records(store.root))) for name in ("ce", "haframe"))
    return read_pair(a, b, work / "data", read_records(store.root))


@pytest.fixture(scope="module")
def chosen(pair):
    return choose(pair.heights, pair.between, pair.confidence, 120)


@pytest.fixture(scope="module")
def page(pair, chosen, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "mistakes.html"
    path.write_text(render(pair, chosen), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with in_browser.started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def browser(chromium, page):
    """The page, freshly loaded at the size of a desktop window, with empty logs."""
    return in_browser.show(chromium, page)


def wait_for(browser, code):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, 30, 0.05).until(lambda _: js(browser, code))


def shown(browser):
    return js(browser, "[...document.querySelectorAll('.card')].map((card) => Number(card.dataset.row))")


def choose_option(browser, name, value):
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element("id", name)).select_by_value(str(value))


def focused(browser):
    return js(browser, "document.activeElement.id || document.activeElement.textContent")


def test_it_loads_in_silence(browser, page):
    """No message on the console, no request but for itself, no dialog, and the hostile class name is text."""
    at_first = js(browser, "document.querySelectorAll('.card img').length")
    js(browser, "scrollTo(0, document.body.scrollHeight)")
    wait_for(browser, f"document.querySelectorAll('.card img').length > {at_first}")
    assert browser.get_log("browser") == []
    urls = in_browser.requests(browser)
    assert page in urls and {url for url in urls if not url.startswith("data:")} == {page}
    assert js(browser, "window.ran") is None
    assert js(browser, "document.querySelectorAll('img:not(.frame img), .card script, .card b b').length") == 0
    names = js(browser, "[...document.querySelectorAll('.card .tree b')].map((leaf) => leaf.textContent)")
    assert {HOSTILE, MARKUP} <= set(names)


def test_the_policy_blocks_foreign_content_of_the_page(browser):
    markup = '<img src=data:, onerror="alert(1)"><b style="color:red">x</b>'
    js(browser, "document.body.insertAdjacentHTML('beforeend', arguments[0])", markup)
    tried = browser.execute_async_script(
        "fetch('http://127.0.0.1:9/').then(() => 'fetched', () => 'refused').then(arguments[0])"
    )
    wait_for(browser, "document.querySelector('body > img').complete")
    assert tried == "refused" and js(browser, "window.ran") is None
    messages = " ".join(entry["message"] for entry in browser.get_log("browser"))
    assert all(word in messages for word in ("connect-src", "event handler", "style"))


def test_images_come_when_they_are_looked_at(browser, chosen):
    wait_for(browser, "document.querySelectorAll('.card').length > 0")
    at_first = js(browser, "document.querySelectorAll('.card img').length")
    assert at_first < len(chosen) / 3
    last = "document.querySelector('.card:last-child')"
    assert not js(browser, f"{last}.querySelector('img')")
    js(browser, f"{last}.scrollIntoView()")
    wait_for(browser, f"{last}.querySelector('img')?.naturalWidth === 40")
    assert at_first < js(browser, "document.querySelectorAll('.card img').length") < len(chosen)
    assert js(browser, f"{last}.querySelector('img').classList.contains('tiny')")


def test_a_card_shows_the_facts_of_its_image(browser, pair, chosen):
    names = [path[-1] for path in pair.prepared.meta["paths"]]
    texts = js(browser, "[...document.querySelectorAll('.card')].map((card) => card.textContent)")
    for text, n in zip(texts, chosen, strict=True):
        assert f"target {names[pair.targets[n]]}test image {pair.rows[n]}; predictions {pair.between[n]} apart" in text
        for side, tag in enumerate("AB"):
            height, share = pair.heights[side, n], round(pair.confidence[side, n], 4)
            verdict = f"LCA height {height} of 3" if height else "right"
            confidence = f"{100 * share:.1f}" if share < 0.1 else f"{np.floor(100 * share + 0.5):.0f}"
            assert f"{tag}{names[pair.predicted[side, n]]}{verdict}, {confidence} %" in text


def test_paths_fork_at_the_lowest_common_ancestor(browser, pair, chosen):
    """Lines of the tree: the part that all share, then one line from each fork on."""
    read = """[...document.querySelectorAll('.card .tree')].map((tree) => [...tree.querySelectorAll('li')].map((line) =>
        [...line.childNodes].filter((node) => node.tagName !== 'UL').map((node) => node.textContent).join('')))"""
    paths = pair.prepared.meta["paths"]
    for lines, n in zip(js(browser, read), chosen, strict=True):
        leaves = {int(leaf): paths[leaf] for leaf in (pair.targets[n], *pair.predicted[:, n])}
        shared = ["root"]
        for names in zip(*leaves.values(), strict=False):
            if len(set(names)) > 1:
                break
            shared.append(names[0])
        assert lines[0] == " › ".join(shared)
        ends = [line for line in lines if line.endswith(("target", " A", " B"))]
        assert len(ends) == len(leaves) and any(line.endswith("target") or " target " in line for line in ends)
        inner = {name for line in lines[1:] for name in line.split(" › ")[:-1]}
        assert not inner & set(shared)


def test_counts_are_of_all_test_images(browser, pair):
    counts = pair.counts()
    rows = js(
        browser,
        "[...document.querySelectorAll('#heights tbody tr')].map((row) =>"
        " [...row.querySelectorAll('.number')].map((cell) => Number(cell.textContent)))",
    )
    assert rows == np.stack([counts.sum(axis=1), counts.sum(axis=0)], axis=1).tolist()
    cells = js(
        browser,
        "[...document.querySelectorAll('#matrix tbody tr')].map((row) =>"
        " [...row.cells].slice(1).map((cell) => Number(cell.textContent)))",
    )
    assert cells == counts.tolist()


def test_filters(browser, pair, chosen):
    a, b = pair.heights[:, chosen]
    rows = pair.rows[chosen]
    assert shown(browser) == rows.tolist()
    choose_option(browser, "height-a", 3)
    assert shown(browser) == rows[a == 3].tolist()
    choose_option(browser, "height-b", "wrong")
    assert shown(browser) == rows[(a == 3) & (b > 0)].tolist()
    choose_option(browser, "height-a", "")
    choose_option(browser, "height-b", 0)
    assert shown(browser) == rows[b == 0].tolist()
    assert js(browser, "document.getElementById('shown').textContent") == f"{(b == 0).sum()} of {len(chosen)} shown"
    browser.find_element("id", "text").send_keys("  IMG src")
    script = [path[-1] for path in pair.prepared.meta["paths"]].index(HOSTILE)
    named = (np.stack([pair.targets[chosen], *pair.predicted[:, chosen]]) == script).any(axis=0)
    assert 0 < named.sum() < len(chosen) and shown(browser) == rows[(b == 0) & named].tolist()
    browser.find_element("id", "text").send_keys(" nothing")
    assert shown(browser) == [] and browser.find_element("id", "none").is_displayed()
    browser.find_element("id", "reset").click()
    assert shown(browser) == rows.tolist() and not browser.find_element("id", "none").is_displayed()
    options = js(browser, "[...document.querySelectorAll('#height-a option')].map((option) => option.textContent)")
    assert options[:2] == [f"all ({len(chosen)})", f"any mistake ({(a > 0).sum()})"]
    assert options[3:] == [f"{height} ({(a == height).sum()})" for height in (1, 2, 3)]


@pytest.mark.parametrize("direction", ["largest", "smallest"])
def test_sorting(browser, pair, chosen, direction):
    a, b = pair.heights[:, chosen]
    sign = -1 if direction == "largest" else 1
    confidence = pair.confidence[:, chosen].round(4)
    keys = {
        "between": [pair.between[chosen]],
        "height-0": [a],
        "height-1": [b],
        "confidence-0": [confidence[0]],
        "confidence-1": [confidence[1]],
        "disagreement": [pair.between[chosen], np.abs(a - b)],
    }
    if direction == "smallest":
        browser.find_element("id", "direction").click()
    for name, columns in keys.items():
        choose_option(browser, "sort", name)
        expected = np.lexsort([sign * column for column in columns])  # stable, as is the page's
        assert shown(browser) == pair.rows[chosen][expected].tolist(), name


def test_it_can_be_used_by_keyboard(browser, pair, chosen):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    press(browser, Keys.TAB)
    assert focused(browser) == "Skip to the images"
    assert js(browser, "document.activeElement.getBoundingClientRect().left >= 0")
    assert js(browser, "getComputedStyle(document.activeElement).outlineStyle") == "solid"
    press(browser, Keys.TAB)  # the table is one stop, on its first mistake; arrows move within it
    counts = pair.counts()
    assert js(browser, "document.activeElement.ariaLabel") == f"A at 0, B at 1: {counts[0, 1]} images"
    press(browser, Keys.ARROW_LEFT, Keys.ARROW_UP, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)  # the first two lead nowhere
    assert js(browser, "document.activeElement.ariaLabel") == f"A at 1, B at 2: {counts[1, 2]} images"
    press(browser, Keys.ENTER)
    a, b = pair.heights[:, chosen]
    assert shown(browser) == pair.rows[chosen][(a == 1) & (b == 2)].tolist()
    assert focused(browser) == "height-a"
    stops = []
    for _ in range(7):
        press(browser, Keys.TAB)
        stops.append(js(browser, "document.activeElement.id"))
    assert stops[:6] == ["height-b", "text", "sort", "direction", "reset", "paths"]
    back = ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT)
    back.send_keys(Keys.SPACE).perform()  # the box folds all paths
    assert js(browser, "document.querySelectorAll('.card details[open]').length") == 0
    press(browser, Keys.TAB, Keys.ENTER)
    assert focused(browser) == "Paths"
    assert js(browser, "document.querySelectorAll('.card details[open]').length") == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_it_fits_phones_and_follows_the_scheme(chromium, page, scheme, width):
    browser = in_browser.show(chromium, page, width=width, scheme=scheme)
    assert js(browser, "document.documentElement.scrollWidth <= innerWidth")
    columns = "getComputedStyle(document.getElementById('examples')).gridTemplateColumns.split(' ').length"
    assert js(browser, columns) == (1 if width == 360 else 2)
    colours = {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 27)"}
    assert js(browser, "getComputedStyle(document.body).backgroundColor") == colours[scheme]
