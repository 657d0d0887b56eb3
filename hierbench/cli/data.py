"""`hierbench data list|import|new|prepare|verify`."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.config.names import complete_dataset
from hierbench.config.options import DataOption, ProtocolOption
from hierbench.utils.errors import UserError

app = typer.Typer(help="List, import, prepare and verify datasets.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_(
    dataset: Annotated[
        str | None,
        typer.Argument(help="One alone: a name, or the file of your dataset.", autocompletion=complete_dataset),
    ] = None,
    data_dir: DataOption = Path("data"),
    features: Annotated[bool, typer.Option("--features", help="List the cached features instead.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="With --features: remove stale, damaged and unfinished ones.")
    ] = False,
) -> None:
    """List the datasets, yours too, and which of them are prepared; or the cached features of frozen backbones."""
    if prune and not features:
        raise UserError("--prune is for cached features: hierbench data list --features --prune")
    if features and dataset is not None:
        raise UserError("--features lists the caches of all datasets: leave out the dataset")
    if features:
        return _list_features(data_dir, prune=prune)
    from hierbench.config.recipe import protocols_of, recipe_names
    from hierbench.data.prepared import find, variant_name
    from hierbench.data.user.opening import prepared_names

    yours, titles = prepared_names(data_dir), dict[str, str]()
    if dataset in yours:
        titles[dataset] = "(yours)"
    for name in recipe_names() if dataset is None else [dataset] if dataset not in yours else []:
        recipes = protocols_of(name)
        for recipe in recipes:
            titles.setdefault(variant_name(recipe.dataset, recipe.data.jpeg_quality), recipes[0].title)
    if dataset is None:
        titles |= {name: "(yours)" for name in yours}
    for variant, title in titles.items():
        there = find(variant, data_dir)
        sizes = "" if there is None else ", ".join(f"{split} {n:,}" for split, n in there.meta["splits"].items())
        print(f"{variant:16} {title:28} {f'prepared: {sizes}' if there else 'not prepared'}")


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(help="Folder of a Hugging Face dataset, or its name on the hub.")],
    out: Annotated[Path, typer.Option(help="Folder to make, for the images and manifest.csv.")],
    image: Annotated[str | None, typer.Option(help="Column of the images; needed where there are several.")] = None,
    label: Annotated[str | None, typer.Option(help="Column of the labels; needed where there are several.")] = None,
) -> None:
    """Write a Hugging Face dataset as image files and a manifest, for `hierbench data new`."""
    if os.path.lexists(out):
        raise UserError(f"{out} is there already; remove it, or give another folder with --out")
    if not out.absolute().parent.is_dir():
        raise UserError(f"--out {out}: no such folder as {out.parent}")
    from hierbench.data.user.huggingface import open_dataset, write_files
    from hierbench.utils.console import Meter, say

    parts = open_dataset(name, image, label, say)
    with Meter("importing", 1.0) as meter:
        manifest = write_files(parts, out, lambda share: meter.part("images", share, 1.0))
    sizes = ", ".join(f"{part.title} {len(part.labels):,}" for part in parts)
    num = len({label for part in parts for label in part.labels})
    print(f"{name}: {sizes}; {num:,} classes")
    command = shlex.join(["hierbench", "data", "new", "NAME", "--images", str(out / manifest.name), "--tree", "TREE"])
    print(f"wrote {out}; run: {command}")


@app.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Of the dataset: letters, digits, - and _.")],
    images: Annotated[Path, typer.Option(help="Folder with a folder per class, or a manifest (.csv, .parquet).")],
    tree: Annotated[str, typer.Option(help="File of paths or edges, or the name of a tree that comes with hierbench.")],
    output: Annotated[Path | None, typer.Option(help="File to write; by default NAME.toml.")] = None,
    backbone: Annotated[
        str, typer.Option(help="Trained from random weights; or torchvision:NAME, timm:NAME, frozen as published.")
    ] = "wrn10-1-s4",
    resize: Annotated[Literal["stretch", "center-crop"], typer.Option(help="How images become squares.")] = "stretch",
) -> None:
    """Read the images and the tree of a dataset of yours, and write its file, ready to run."""
    from hierbench.config.sections import Model
    from hierbench.data.user.template import Asked, write_recipe
    from hierbench.models.libraries.lookup import check_backbone, input_size
    from hierbench.utils.console import Meter

    is_library, side = ":" in backbone, 64 if backbone.startswith("wrn") else 224
    model = Model(backbone=backbone, weights="default" if is_library else "none")
    check_backbone(model)
    size = input_size(model) if is_library else (side, side)
    asked = Asked(name, str(images), tree, output or Path(f"{name}.toml"), backbone, resize, size)
    with Meter(f"reading {name}", 1.0) as meter:
        sizes = write_recipe(asked, lambda share: meter.part("images", share, 1.0), meter.say)
    levels = ", ".join(map(str, sizes.level_sizes))
    num = f"{sizes.train + sizes.val + sizes.test:,} images read"
    print(f"{name}: {num}: train {sizes.train:,}, val {sizes.val:,}, test {sizes.test:,}; levels {levels}")
    file = asked.output if asked.output.is_absolute() else Path(".", asked.output)
    print(
        f"wrote {asked.output}; run: hierbench run --methods paper --dataset {'' if file.is_absolute() else './'}{file}"
    )


def _list_features(data_dir: Path, *, prune: bool) -> None:
    from hierbench.data import feature_list

    if prune:
        removed = feature_list.prune(data_dir)
        for cache in removed:
            print(f"removed: {cache.line}")
        print(f"{len(removed)} removed, {sum(cache.bytes for cache in removed) / 1e6:,.1f} MB freed")
    there = feature_list.caches(data_dir)
    for cache in there:
        print(f"{cache.line}  {cache.folder}")
    print(f"{len(there)} caches of features, {sum(cache.bytes for cache in there) / 1e6:,.1f} MB")


@app.command("prepare")
def prepare(
    dataset: Annotated[
        str, typer.Argument(help="Name of the dataset, or your dataset's file.", autocompletion=complete_dataset)
    ],
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
    from hierbench.planning.dry_run import say_notes
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
    dataset: Annotated[
        str,
        typer.Argument(
            help="Name of the dataset, as in `data list`, or your dataset's file.", autocompletion=complete_dataset
        ),
    ],
    data_dir: DataOption = Path("data"),
) -> None:
    """Check a prepared dataset against its digest."""
    from hierbench.config.recipe import dataset_name
    from hierbench.data import prepared

    name = dataset_name(dataset)
    print(f"{name}: unchanged since it was prepared, digest {prepared.verify(name, data_dir, dataset).digest[:12]}")
