"""The Atom feed (RFC 4287): an entry per table, and one per change of a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5
from xml.sax.saxutils import escape, quoteattr

from hierbench.experiments.site.names import clean

EPOCH = "1970-01-01T00:00:00Z"  # of a site whose records name no time


@dataclass(frozen=True)
class Entry:
    """One entry.

    Attributes:
        key: what its id follows from.
        page: of the site, relative to its root.
        updated: a time as in RFC 3339.
    """

    key: str
    title: str
    page: str
    updated: str
    text: str
    authors: tuple[str, ...] = ()


def atom(title: str, base_url: str, entries: Sequence[Entry]) -> str:
    """Return the feed, newest first; without an address of the site its links are relative to the feed."""
    newest = sorted(entries, key=lambda entry: (entry.updated, entry.key), reverse=True)
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        '<feed xmlns="http://www.w3.org/2005/Atom">',
        f"<id>{_id(base_url or title)}</id>",
        f"<title>{_text(title)}</title>",
        f"<updated>{newest[0].updated if newest else EPOCH}</updated>",
        "<author><name>hierbench</name></author>",
        f'<link rel="alternate" type="text/html" href={quoteattr(base_url + "index.html")}/>',
        f'<link rel="self" type="application/atom+xml" href={quoteattr(base_url + "feed.xml")}/>',
    ]
    for entry in newest:
        lines += [
            "<entry>",
            f"<id>{_id(f'{base_url or title} {entry.key}')}</id>",
            f"<title>{_text(entry.title)}</title>",
            f"<updated>{entry.updated}</updated>",
            *(f"<author><name>{_text(author)}</name></author>" for author in entry.authors),
            f'<link rel="alternate" type="text/html" href={quoteattr(base_url + entry.page)}/>',
            f'<content type="text">{_text(entry.text)}</content>',
            "</entry>",
        ]
    return "\n".join([*lines, "</feed>", ""])


def _id(key: str) -> str:
    return f"urn:uuid:{uuid5(NAMESPACE_URL, key.encode(errors='replace').decode())}"


def _text(text: str) -> str:
    return escape(str(clean(text, 4000)))
