"""The methods of all tables: where their code is, what it declares, and their rows."""

from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from tokenize import TokenError
from typing import Any

from hierbench.api.code import digest_of_code
from hierbench.leaderboard.statistics import Row
from hierbench.reports.site.content import Table
from hierbench.reports.site.names import Slugs, name_of
from hierbench.reports.site.sources import About, about_method
from hierbench.utils.files import read_bytes

LARGEST = 1 << 20  # bytes of a method's file
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
        self._slugs, self._installed = Slugs(), dict[str, tuple[str, str]]()

    def add(self, table: Table, row: Row) -> Known | None:
        """Return the method of a row, with the row among its cells; None for predictions made elsewhere."""
        key, folder = self._key(table, row)
        if key is None:
            return None
        if key not in self.known:
            name, code = key
            text, file = self._source(table, name, code, folder)
            about = about_method(text, name) if text else About()
            title = name_of(about.title or row.title)
            self.known[key] = Known(name, code, self._slugs.of(name), title, text, file, about)
        self.known[key].cells.append((table, row))
        return self.known[key]

    def _key(self, table: Table, row: Row) -> tuple[Key | None, Path]:
        for run_id in row.runs:
            run = table.store.run(run_id)
            try:
                method: Any = run.spec().get("method")
            except ValueError:
                continue
            if isinstance(method, dict) and isinstance(method.get("name"), str):
                return (method["name"], str(method.get("code", ""))), run.folder
        return None, table.folder

    def _source(self, table: Table, name: str, code: str, folder: Path) -> tuple[str, str]:
        """Return the text of the file whose code has the digest, and its path if it was published; "" without one."""
        if name.isidentifier():
            installed = self._of_project(name)
            if installed[0] == code:
                return installed[1], ""
            published = table.store.root / "methods" / f"{name}-{code[:12]}.py"
            for path in (folder / f"{name}.py", published):
                digest, text = _read(path)
                if digest == code:
                    return text, path.relative_to(table.folder).as_posix()
        return "", ""

    def _of_project(self, name: str) -> tuple[str, str]:
        if name not in self._installed:
            self._installed[name] = _read(Path(str(resources.files("hierbench.methods"))) / f"{name}.py")
        return self._installed[name]


def _read(path: Path) -> tuple[str, str]:
    """Return the digest of a file's code and its text, ("", "") for what is not readable Python."""
    try:
        content = read_bytes(path, LARGEST)
        return digest_of_code(content), content.decode()
    except (OSError, ValueError, SyntaxError, TokenError, RecursionError, MemoryError):
        return "", ""
