"""`hierbench data list|prepare|verify`."""

from pathlib import Path
from typing import Annotated

import typer

from hierbench.config.options import DataOption, ProtocolOption

app = typer.Typer(help="List, prepare and verify datasets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(data_dir: DataOption = Path("data")) -> None:
    """List the datasets and which of them are prepared."""
    from hierbench.config.recipe import PROTOCOLS, load_recipe, recipe_names
    from hierbench.data.prepared import find, variant_name

    for name in recipe_names():
        recipes = [load_recipe(name, protocol=protocol) for protocol in PROTOCOLS]
        for variant in dict.fromkeys(variant_name(name, recipe.data.jpeg_quality) for recipe in recipes):
            there = find(variant, data_dir)
            sizes = "" if there is None else ", ".join(f"{split} {n:,}" for split, n in there.meta["splits"].items())
            print(f"{variant:16} {recipes[0].title:28} {f'prepared: {sizes}' if there else 'not prepared'}")


@app.command("prepare")
def prepare(
    dataset: Annotated[str, typer.Argument(help="Name of the dataset.")],
    source: Annotated[Path | None, typer.Option(help="Your copy; by default downloaded if the terms allow it.")] = None,
    data_dir: DataOption = Path("data"),
    protocol: ProtocolOption = "paper",
    offline: Annotated[
        Path | None, typer.Option(help="Folder with the tree and split lists, so they are not downloaded.")
    ] = None,
    allow_missing: Annotated[bool, typer.Option("--allow-missing", help="Accept missing images.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Prepare again even if already prepared.")] = False,
) -> None:
    """Decode and resize a dataset once into uint8 arrays."""
    from hierbench.config.recipe import load_recipe
    from hierbench.experiments.publishing import say_notes
    from hierbench.planning.inputs import prepare_with_progress

    recipe = load_recipe(dataset, protocol=protocol)
    prepared = prepare_with_progress(
        recipe,
        data_dir,
        source,
        force=force,
        offline=offline,
        allow_missing=allow_missing,
        jpeg_quality=recipe.data.jpeg_quality,
    )
    say_notes(prepared)
    sizes = ", ".join(f"{split} {n:,}" for split, n in prepared.meta["splits"].items())
    tree = prepared.hierarchy("height")
    levels = ", ".join(map(str, tree.level_sizes))
    print(f"{recipe.dataset}: {sizes}; {tree.num_classes} classes, height {tree.height}, levels {levels}")
    print(f"digest {prepared.digest[:12]}; in {prepared.folder}")


@app.command("verify")
def verify(
    dataset: Annotated[str, typer.Argument(help="Name of the dataset, as in `data list`.")],
    data_dir: DataOption = Path("data"),
) -> None:
    """Check a prepared dataset against its digest."""
    from hierbench.config.recipe import dataset_name
    from hierbench.data import prepared

    name = dataset_name(dataset)
    print(f"{name}: {prepared.verify(name, data_dir).digest[:12]} as prepared")
