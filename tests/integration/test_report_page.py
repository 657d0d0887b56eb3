"""The page of `hierbench report` in headless Chromium: at two widths, in both schemes, without scripts or requests."""

import numpy as np
import pytest

import hierbench
from hierbench import Hierarchy
from tests.support import browser as in_browser
from tests.support.browser import js, requests, violations

NAMES = ["<img src=x onerror=alert(1)>", "long " * 40, "سنجاب", "松鼠", 'a "quoted" & name', "robin"]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    paths = {
        name.strip(): (f"{NAMES[0]} {i % 2}", f"group {i % 3}, {i % 2}", name.strip()) for i, name in enumerate(NAMES)
    }
    tree = Hierarchy.from_paths(paths)
    generator = np.random.default_rng(0)
    targets = generator.integers(6, size=300)
    scores = generator.gumbel(size=(300, 6)) + 1.5 * (np.arange(6) == targets[:, None])
    better = scores + (np.arange(6) == targets[:, None])
    counts = dict(zip(tree.classes, (3, 30, 300, 4, 40, 400), strict=True))
    report = hierbench.report(scores, targets, tree, order="tree", against=better, resamples=200, train_counts=counts)
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write(path)
    return path


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with in_browser.started(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_readable(chromium, page, width, scheme):
    shown = in_browser.show(chromium, page.as_uri(), width, scheme)
    assert js(shown, "document.documentElement.scrollWidth") <= width
    assert js(shown, "getComputedStyle(document.querySelector('svg text')).fontSize") == "10px"
    assert js(shown, "document.querySelector('svg').getBoundingClientRect().width") >= min(width, 640) * 0.9
    assert violations(shown) == []
    assert requests(shown) == {page.as_uri()}
    assert js(shown, "window.ran === undefined && document.images.length == 0")


def test_names_stand_as_they_are(chromium, page):
    shown = in_browser.show(chromium, page.as_uri())
    text = js(shown, "document.body.innerText")
    for name in NAMES:
        assert (
            name.strip() in text
            or name.strip()
            in js(shown, "atob(document.querySelector('a[download]').href.split(',')[1])").encode("latin1").decode()
        )
    assert js(shown, "[...document.querySelectorAll('h2')].map(h => h.innerText[0]).join('')") == "12345"


def test_nothing_depends_on_scripts_and_it_prints(chromium, page):
    shown = in_browser.show(chromium, page.as_uri(), scripts=False)
    printed = shown.execute_cdp_cmd("Page.printToPDF", {})["data"]
    assert len(printed) > 20_000
    assert page.stat().st_size < 300_000
