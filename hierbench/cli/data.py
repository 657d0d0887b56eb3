"""`hierbench data list|import|new|prepare|verify`."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Literal

import typer

from hierbench.cli.command import command, group
from hierbench.config.names import complete_dataset
from hierbench.config.options import DataOption, ProtocolOption
from hierbench.leaderboard.table import Flag, Line, Number, Table, Text
from hierbench.utils.errors import UserError


@command("data list", table="terminal")
def list_(
    dataset: Annotated[
        str | None,
        typer.Argument(help="One alone: a name, or the file of your dataset.", autocompletion=complete_dataset),
    ] = None,
    data_dir: DataOption = Path("data"),
    features: Annotated[bool, "List the cached features instead."] = False,
    prune: Annotated[bool, "With --features: remove stale, damaged and unfinished ones."] = False,
) -> Table:
    """List the datasets, yours too, and which of them are prepared; or the cached features of frozen backbones."""
    if prune and not features:
        raise UserError("--prune is for cached features: hierbench data list --features --prune")
    if features and dataset is not None:
        raise UserError("--features lists the caches of all datasets: leave out the dataset")
    if features:
        return _features_table(data_dir, prune=prune)
    from hierbench.config.recipe import protocols_of, recipe_names
    from hierbench.data.prepared import find, variant_name
    from hierbench.data.user.opening import prepared_names
    from hierbench.data.writer import SPLITS

    yours, titles = prepared_names(data_dir), dict[str, str]()
    if dataset in yours:
        titles[dataset] = "(yours)"
    for name in recipe_names() if dataset is None else [dataset] if dataset not in yours else []:
        recipes = protocols_of(name)
        for recipe in recipes:
            titles.setdefault(variant_name(recipe.dataset, recipe.data.jpeg_quality), recipes[0].title)
    if dataset is None:
        titles |= {name: "(yours)" for name in yours}
    rows = []
    for variant, title in titles.items():
        there = find(variant, data_dir)
        state = Flag("not prepared") if there is None else Flag("prepared", "yes")
        sizes = {} if there is None else there.meta["splits"]
        rows.append(Line([Text(variant), Text(title), state, *(Number(sizes.get(split), ",") for split in SPLITS)]))
    return Table("Datasets", ("Name", "Dataset", "State", *SPLITS), rows)


@command("data import food101 --output food")
def import_(
    name: Annotated[str, typer.Argument(help="Folder of a Hugging Face dataset, or its name on the hub.")],
    output: Annotated[Path, typer.Option(metavar="FOLDER", help="To make, for the images and manifest.csv.")],
    image: Annotated[str | None, "Column of the images; needed where there are several."] = None,
    label: Annotated[str | None, "Column of the labels; needed where there are several."] = None,
) -> None:
    """Write a Hugging Face dataset as image files and a manifest, for `hierbench data new`."""
    if os.path.lexists(output):
        raise UserError(f"{output} is there already; remove it, or give another folder with --output")
    if not output.absolute().parent.is_dir():
        raise UserError(f"--output {output}: no such folder as {output.parent}")
    from hierbench.data.user.huggingface import open_dataset, write_files
    from hierbench.utils.console import Meter, say

    parts = open_dataset(name, image, label, say)
    with Meter("importing", 1.0) as meter:
        manifest = write_files(parts, output, lambda share: meter.part("images", share, 1.0))
    sizes = ", ".join(f"{part.title} {len(part.labels):,}" for part in parts)
    num = len({label for part in parts for label in part.labels})
    print(f"{name}: {sizes}; {num:,} classes")
    new = ["hierbench", "data", "new", "NAME", "--images", str(output / manifest.name), "--tree", "TREE"]
    print(f"wrote {output}; run: {shlex.join(new)}")


@command("data new birds --images images --tree taxonomy.csv")
def new(
    name: Annotated[str, typer.Argument(help="Of the dataset: letters, digits, - and _.")],
    images: Annotated[Path, "Folder with a folder per class, or a manifest (.csv, .parquet)."],
    tree: Annotated[str, "File of paths or edges, or the name of a tree that comes with hierbench."],
    output: Annotated[Path | None, "File to write; by default NAME.toml."] = None,
    backbone: Annotated[str, "Trained from random weights; or timm:NAME, torchvision:NAME, frozen."] = "wrn10-1-s4",
    resize: Annotated[Literal["stretch", "center-crop"], "How images become squares."] = "stretch",
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


def _features_table(data_dir: Path, *, prune: bool) -> Table:
    from hierbench.data import feature_list

    removed = feature_list.prune(data_dir) if prune else []
    there = feature_list.caches(data_dir)
    sizes = [sum(cache.bytes for cache in of) / 1e6 for of in (removed, there)]
    listed = [(one, "removed") for one in removed] + [(one, str(one.state)) for one in there]
    rows = [
        Line([Text(one.dataset), Text(one.what), Number(one.bytes / 1e6, ",.1f"), Flag(state), Text(str(one.folder))])
        for one, state in listed
    ]
    freed = [f"{len(removed)} removed, {sizes[0]:,.1f} MB freed"] if prune else []
    notes = [*freed, f"{len(there)} caches of features, {sizes[1]:,.1f} MB"]
    return Table("Cached features", ("Dataset", "Features", "MB", "State", "Folder"), rows, notes)


@command("data prepare shapes")
def prepare(
    dataset: Annotated[
        str, typer.Argument(help="Name of the dataset, or your dataset's file.", autocompletion=complete_dataset)
    ],
    source: Annotated[Path | None, "Your copy; by default downloaded if the terms allow it."] = None,
    data_dir: DataOption = Path("data"),
    protocol: ProtocolOption = "paper",
    offline: Annotated[Path | None, "Folder with the tree and split lists, so they are not downloaded."] = None,
    allow_missing: Annotated[bool, "Accept missing images."] = False,
    force: Annotated[bool, "Prepare again even if already prepared."] = False,
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


@command("data verify shapes")
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


app = group("List, import, prepare and verify datasets.", list_, import_, new, prepare, verify)
