"""Pictures of a publication: only what holds nothing but a drawing is copied, and pages show it as an image."""

import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from hierbench.utils.files import read_bytes

LARGEST = 4 << 20  # bytes
KINDS = {  # those of a publication; others beside it may be of an earlier table
    "tradeoff": "Accuracy over mistake severity",
    "severity": "Mistakes by their severity",
    "operating": "Risk over coverage, where a prediction may stop at an inner node",
}
SVG = "{http://www.w3.org/2000/svg}"
DRAWN = frozenset(
    "svg metadata defs style g path use clipPath rect circle ellipse line polyline polygon text tspan title desc "
    "linearGradient radialGradient stop image marker pattern symbol".split()
)
DATA = re.compile(r"\s*data:image/(png|jpeg|webp);base64,[A-Za-z0-9+/=\s]*")


@dataclass(frozen=True)
class Picture:
    """A picture that is shown, or the reason why it is not."""

    kind: str
    title: str
    content: bytes = b""
    trouble: str = ""


def pictures_of(folder: Path, dataset: str) -> list[Picture]:
    """Return the pictures of a published table."""
    found = []
    for kind, title in KINDS.items():
        try:
            content = read_bytes(folder / f"{dataset}-{kind}.svg", LARGEST)
        except FileNotFoundError:
            continue
        except OSError as error:
            found.append(Picture(kind, title, trouble=str(error.strerror)))
            continue
        trouble = trouble_of(content)
        found.append(Picture(kind, title, b"" if trouble else content, trouble))
    return found


def trouble_of(content: bytes) -> str:
    """Return why an SVG file is more than a drawing, "" if it is none: a visitor may open it outside of the page."""
    if b"<!ENTITY" in content or b"<?xml-stylesheet" in content:
        return "it declares entities or a style sheet"
    try:
        root = ElementTree.fromstring(content)
    except (ElementTree.ParseError, ValueError):
        return "it is not XML"
    if root.tag != f"{SVG}svg":
        return "it is not SVG"
    inside_metadata = {id(node) for part in root.iter(f"{SVG}metadata") for node in part.iter()}
    for node in root.iter():
        name = node.tag.removeprefix(SVG)
        if id(node) not in inside_metadata and (not node.tag.startswith(SVG) or name not in DRAWN):
            return f"it holds <{name[:40]}>"
        if node.tag.startswith(SVG) and (what := _active(node)):
            return f"it holds {what}"
    return ""


def _active(node: ElementTree.Element) -> str:
    """Return what in an element runs or loads something, "" if nothing."""
    for key, value in node.attrib.items():
        name = key.rpartition("}")[2].lower()
        if name.startswith("on"):
            return f"a handler {name[:40]}"
        if name in ("href", "src") and not value.startswith("#") and not DATA.fullmatch(value):
            return "a link"
        if _loads(value):
            return "an address in a style"
    return "an address in a style" if node.tag == f"{SVG}style" and _loads(node.text or "") else ""


def _loads(text: str) -> bool:
    plain = text.lower()
    return "@import" in plain or "\\" in plain or bool(re.search(r"url\(\s*['\"]?\s*(?!#|['\"\s])", plain))
