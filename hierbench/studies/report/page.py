"""The page of a report: one HTML file that needs nothing else, no script, no request."""

import base64
import gzip
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from hierbench.studies.report import drawings, sentences
from hierbench.studies.report.report_numbers import ReportNumbers
from hierbench.utils.text import one_line

PLAIN_CSV = 300_000  # bytes; a longer list of classes is compressed


def page_text(report: ReportNumbers) -> str:
    """Return the page, HTML."""
    environment = Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=StrictUndefined, finalize=_printable
    )
    environment.filters["number"] = sentences.number
    environment.filters["interval"] = sentences.with_interval
    template = (resources.files("hierbench.studies.report") / "page.html.j2").read_text(encoding="utf-8")
    pictures = {"mistakes": Markup(drawings.icicle(report).svg)}
    if report.recommended:
        pictures["rules"] = Markup(drawings.answers(report).svg)
    if report.second is not None and report.resampling.resamples:
        pictures["against"] = Markup(drawings.differences(report).svg)
    return environment.from_string(template).render(
        report=report,
        content=report.content(),
        sentences=sentences,
        pictures=pictures,
        colors=Markup(drawings.COLORS),
        errors=drawings.ERRORS,
        classes=classes_link(report),
    )


def _printable(value: Any) -> Any:
    """Return texts without characters that no page can hold; what a template computes is left as it is."""
    return one_line(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def classes_link(report: ReportNumbers) -> dict[str, str]:
    """Return the address and name of the list of all classes, which is in the page."""
    content = report.mistakes.classes_csv().encode(errors="replace")
    is_long = len(content) > PLAIN_CSV
    encoded = base64.b64encode(gzip.compress(content, mtime=0) if is_long else content).decode()
    kind = "application/gzip" if is_long else "text/csv;charset=utf-8"
    return {"href": f"data:{kind};base64,{encoded}", "name": "classes.csv" + ".gz" * is_long}
