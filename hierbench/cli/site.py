"""`hierbench site`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, group
from hierbench.config.options import DataOption
from hierbench.utils.text import counted


@command("site build boards --output site")
def build(
    folder: Annotated[Path, typer.Argument(help="Folder of published tables.")],
    output: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Folder of the site; a site that this command made is replaced.")
    ],
    data_dir: DataOption = Path("data"),
) -> None:
    """Verify the tables of a folder and write them as static pages that load nothing from elsewhere."""
    from hierbench.sharing.site.build import build_site

    files, tables = build_site(folder, output, data_dir)
    rejected = sum(table.counts().get("rejected", 0) for table in tables)
    parts = [counted(len(tables), "table"), counted(files, "file")]
    parts += [counted(rejected, "rejected run")] if rejected else []
    print(f"wrote {output / 'index.html'} ({', '.join(parts)})")


app = group("Make published tables into a web site.", build)
