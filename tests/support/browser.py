"""Pages as files and in headless Chromium, and axe-core, which finds barriers for readers."""

import json
import shutil
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM, CHROMEDRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
AXE = ROOT / "build/axe/axe_playwright_python/axe.min.js"  # axe-core, which .ci/run fetches
VOID = {"meta", "link", "img", "input", "br"}
RUN_AXE = ";axe.run({resultTypes: ['violations']}).then((found) => JSON.stringify(found.violations))"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --disable-dev-shm-usage --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync --window-size=1300,900"
)


@contextmanager
def started(profile):
    """Chromium with a fresh profile, whose dialogs only set `window.ran`; without it the test is skipped."""
    if not CHROMIUM.exists() or not CHROMEDRIVER.exists():
        pytest.skip("no /usr/bin/chromium and /usr/bin/chromedriver: Debian's chromium and chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for flag in [*FLAGS.split(), f"--user-data-dir={profile}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(CHROMEDRIVER)))
    try:
        source = {"source": "alert = () => { window.ran = true; }"}
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", source)
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)


def show(driver, url, width=1300, scheme="light", scripts=True):
    """Load a page afresh, with empty logs."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not scripts})
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    media = {"media": "", "features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    driver.get("about:blank")
    for kind in ("browser", "performance"):
        driver.get_log(kind)
    driver.get(url)
    return driver


def js(driver, code, *arguments):
    """The value of an expression on the page; also where the page's own scripts are switched off."""
    return driver.execute_script(f"return {code}", *arguments)


def press(driver, *keys):
    """Press keys, one after the other."""
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(*keys).perform()


def requests(driver):
    """The addresses that were asked for since the page was shown."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return {event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"}


def violations(driver):
    """The findings of axe-core: (rule, description, place)."""
    if not AXE.exists():
        pytest.skip(f"no {AXE.relative_to(ROOT)}: npm pack axe-core, as .ci/run does")
    command = {"expression": AXE.read_text(encoding="utf-8") + RUN_AXE, "awaitPromise": True, "returnByValue": True}
    result = driver.execute_cdp_cmd("Runtime.evaluate", command)
    rules = json.loads(result["result"]["value"])
    return [(rule["id"], rule["help"], [node["html"][:150] for node in rule["nodes"][:3]]) for rule in rules]


class Page(HTMLParser):
    """The elements, ids and texts of a page whose tags are nested as they should be."""

    def __init__(self, path):
        super().__init__()
        self.path, self.elements, self.ids, self.open, self.text = path, [], set(), [], []
        self.feed(path.read_text(encoding="utf-8"))
        assert self.open == [], path

    def handle_starttag(self, tag, attrs):
        assert len(attrs) == len(dict(attrs)), (self.path, tag, attrs)
        self.elements.append((tag, dict(attrs)))
        self.ids |= {value for name, value in attrs if name == "id"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (self.path, tag)

    def handle_data(self, data):
        self.text.append(data)
