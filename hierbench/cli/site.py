"""`hierbench site`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, group
from hierbench.config.options import DataOption
from hierbench.utils.errors import UserError


@command("site build boards --output site")
def build(
    folder: Annotated[Path, typer.Argument(help="Folder of published tables.")],
    output: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Of the site; one that this command made is replaced.")
    ],
    title: Annotated[str, "Title of the site."] = "Hierarchy-aware classification",
    data_dir: DataOption = Path("data"),
) -> None:
    """Verify the tables of a folder and write them as static pages that load nothing from elsewhere."""
    from hierbench.sharing.site.build import build_site

    if not title.strip():
        raise UserError("--title is empty")
    files, tables = build_site(folder, output, title, data_dir)
    rejected = sum(table.counts().get("rejected", 0) for table in tables)
    parts = [f"{len(tables)} table{'s' if len(tables) != 1 else ''}", f"{files} files"]
    parts += [f"{rejected} rejected runs"] if rejected else []
    print(f"wrote {output / 'index.html'} ({', '.join(parts)})")


app = group("Make published tables into a web site.", build)
