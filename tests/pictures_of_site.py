"""Takes docs/site.png, the picture of README: `python tests/pictures_of_site.py [SITE]`, by default of build/site."""

import io
import sys
import tempfile
from pathlib import Path

import browser  # beside this file
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
PAGE = "tables/tiny-imagenet-frozen/index.html"
WIDTH, HEIGHT, LARGEST = 1400, 1000, 150_000


def take(site: Path, target: Path) -> None:
    """Write the top of the table page as a PNG of few colours."""
    with browser.started(tempfile.mkdtemp()) as driver:
        browser.show(driver, (site / PAGE).resolve().as_uri(), width=WIDTH)
        screen = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        driver.find_elements("css selector", ".board thead button")[3].click()  # by mistake severity
        driver.execute_script("document.activeElement.blur()")
        picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    picture.quantize(64, dither=Image.Dither.NONE).save(target, optimize=True)
    size = target.stat().st_size
    assert size <= LARGEST, f"{target} has {size} bytes"
    print(f"wrote {target} ({size} bytes)")


if __name__ == "__main__":
    take(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/site", ROOT / "docs/site.png")
