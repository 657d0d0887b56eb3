"""The methods of all tables: where their code is, what it declares, and their rows."""

from dataclasses import dataclass, field
from importlib import resources

from hierbench.api.code import installed_code
from hierbench.experiments.publication.sources import kept_source
from hierbench.experiments.site.content import Table
from hierbench.experiments.site.names import Slugs, name_of
from hierbench.experiments.site.sources import About, about_method
from hierbench.leaderboard.statistics import Row
from hierbench.runs.store import Run

Key = tuple[str, str]  # name and digest of the code


@dataclass
class Known:
    """A method as it ran, in one version of its code.

    Attributes:
        name, code: as the specs of its runs say.
        title: of its rows, or what its file declares.
        text: its file, "" where none with this digest is here.
        file: its path in the folder of the tables, "" for a file of this project.
        cells: (table, row) of its rows.
    """

    name: str
    code: str
    slug: str
    title: str
    text: str = ""
    file: str = ""
    about: About = field(default_factory=About)
    cells: list[tuple[Table, Row]] = field(default_factory=list)


class Methods:
    """The methods of a site, found as its tables are added."""

    def __init__(self) -> None:
        self.known: dict[Key, Known] = {}
        self._slugs = Slugs()

    def add(self, table: Table, row: Row) -> Known | None:
        """Return the method of a row, with the row among its cells; None for predictions made elsewhere."""
        if row.scored or not row.runs:
            return None
        run = table.store.run(row.runs[0])
        method = run.spec()["method"]
        name, code = key = str(method["name"]), str(method["code"])
        if key not in self.known:
            text, file = self._source(table, name, code, run)
            about = about_method(text, name) if text else About()
            title = name_of(about.title or row.title)
            self.known[key] = Known(name, code, self._slugs.of(name), title, text, file, about)
        self.known[key].cells.append((table, row))
        return self.known[key]

    def _source(self, table: Table, name: str, code: str, run: Run) -> tuple[str, str]:
        """Return the text of the file whose code has the digest, and its path if it was published; "" without one."""
        if installed_code(name) == code:
            return resources.files("hierbench.methods").joinpath(f"{name}.py").read_text(encoding="utf-8"), ""
        kept = kept_source(name, code, run, [table.store])
        return (kept[1].decode(errors="replace"), kept[0].relative_to(table.folder).as_posix()) if kept else ("", "")
