"""`hierbench data list|tree|new|prepare|verify`."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hierbench.cli.command import command, group, write_result
from hierbench.cli.shared_options import PLAIN_TREES, plain_trees
from hierbench.config.completion import complete_dataset
from hierbench.config.options import DataOption, ProtocolOption
from hierbench.hierarchy.tree_options import TreeOptions
from hierbench.leaderboard.table import Flag, Line, Number, Table, Text
from hierbench.utils.errors import UserError

if TYPE_CHECKING:
    from hierbench.config.sections import Expected
    from hierbench.data.user.template import TemplateRequest


@command("data list", table="terminal", output=None)
def list_(
    dataset: Annotated[
        str | None,
        typer.Argument(help="Only this dataset: a name, or your dataset's file.", autocompletion=complete_dataset),
    ] = None,
    data_dir: DataOption = Path("data"),
) -> Table:
    """List the datasets, yours too, with their recipes, and which of them are prepared."""
    from hierbench.config.recipe import load_protocols, recipe_names
    from hierbench.data.prepared import find
    from hierbench.data.user.user_dataset import prepared_names
    from hierbench.data.writer import SPLITS

    yours = prepared_names(data_dir)
    builtin = recipe_names()
    titles = dict[str, str]()
    recipes = dict[str, dict[str, None]]()
    for name in [] if dataset in yours else builtin if dataset is None or dataset in builtin else [dataset]:
        for recipe in load_protocols(name):
            if recipe.data.variant not in titles or recipe.dataset == recipe.data.dataset:
                titles[recipe.data.variant] = recipe.title
            recipes.setdefault(recipe.data.variant, {})[recipe.dataset] = None
    if dataset is None or dataset in yours:
        titles |= {name: "(yours)" for name in yours if dataset in (None, name)}
    elif dataset in builtin:
        titles = {name: title for name, title in titles.items() if dataset in recipes[name]}
    rows = []
    for variant, title in titles.items():
        prepared = find(variant, data_dir)
        users = ", ".join(recipes.get(variant, {}))
        state = Flag("not prepared") if prepared is None else Flag("prepared", "yes")
        sizes = {} if prepared is None else prepared.meta["splits"]
        numbers = [Number(sizes.get(split), ",") for split in SPLITS]
        rows.append(Line([Text(variant), Text(title), Text(users), state, *numbers]))
    return Table("Datasets", ("Name", "Dataset", "Recipes", "State", *SPLITS), rows)


@command("data tree taxonomy.csv --output tree.csv")
def tree(
    file: Annotated[str, typer.Argument(help="A tree: a table, lines, JSON or Newick; or one that hierbench has.")],
    *,
    options: TreeOptions,
    output: Annotated[Path | None, "Write the tree as a row of nodes per class, coarsest first: a .csv."] = None,
    format_: Annotated[Literal["text", "json"], "Of what is printed."] = "text",
) -> None:
    """Read a tree, and print how it was understood and what looks like a slip."""
    from hierbench.data.user.user_tree import read_users_tree
    from hierbench.hierarchy.readers import canonical_text, shipped_names

    is_shipped = file in shipped_names() and not Path(file).exists()
    if not is_shipped and not Path(file).exists():
        raise UserError(f"no file {file}, and no tree of this name; known: {', '.join(shipped_names())}")
    reading = read_users_tree(file if is_shipped else str(Path(file).absolute()), options)
    lines = [*reading.about, *map(str, reading.findings)]
    print("\n".join(lines) if format_ == "text" else json.dumps(reading.content(), ensure_ascii=False, indent=2))
    if output is not None:
        write_result(canonical_text(reading.paths, reading.levels), output)
        print(f"wrote {output}", file=sys.stderr)


@command("data new birds --images images --tree taxonomy.csv", **PLAIN_TREES)
def new(
    name: Annotated[str, typer.Argument(help="Name of the dataset: letters, digits, - and _.")],
    tree: Annotated[str, "File of a tree, see `data tree`, or the name of one that comes with hierbench."],
    *,
    options: TreeOptions,
    images: Annotated[
        str,
        typer.Option(metavar="PATH", help="Folder with a folder per class, a manifest, or hf:NAME."),
    ] = "",
    features: Annotated[
        str, typer.Option(metavar="PATH", help="In place of images: an .npz, or a folder of .npy.")
    ] = "",
    order: Annotated[
        Literal["tree", "alphabetical"] | None, "Of the classes that the numbers of features without names mean."
    ] = None,
    output: Annotated[Path | None, "File to write; by default NAME.toml."] = None,
    backbone: Annotated[str, "Trained from random weights; or timm:NAME, torchvision:NAME, frozen."] = "wrn10-1-s4",
    resize: Annotated[Literal["stretch", "center-crop"], "How images become squares."] = "stretch",
    skip_broken: Annotated[bool, "Go on without images that cannot be read."] = False,
    group: Annotated[
        str,
        typer.Option(
            metavar="COLUMN",
            help="A manifest's column, or folder: images of one specimen or site stay on one side of a split.",
        ),
    ] = "",
) -> None:
    """Read the images or features and the tree of a dataset of yours, and write its file, ready to run."""
    from hierbench.config.sections import Model
    from hierbench.data.user.template import BrokenImagesError, TemplateRequest, write_recipe
    from hierbench.models.libraries.lookup import check_backbone, input_size
    from hierbench.utils.console import Meter

    if bool(images) == bool(features):
        raise UserError("give --images or --features" + ", not both" * bool(images))
    if features:
        if (backbone, resize) != ("wrn10-1-s4", "stretch"):
            raise UserError("--backbone and --resize are for images; features are trained on as they are")
        file = output or Path(f"{name}.toml")
        request = TemplateRequest(name, "", tree, file, features=features, options=options, order=order or "")
        with plain_trees(tree):
            sizes = write_recipe(request, lambda share: None, lambda line: print(line, file=sys.stderr))
        return _announce(request, sizes, "rows")
    if order:
        raise UserError("--order is for features; images have the names of their classes")
    is_library = ":" in backbone
    side = 64 if backbone.startswith("wrn") else 224
    model = Model(backbone=backbone, weights="default" if is_library else "none")
    check_backbone(model)
    size = input_size(model) if is_library else (side, side)
    file = output or Path(f"{name}.toml")
    request = TemplateRequest(
        name, images, tree, file, backbone, resize, size, options=options, skip_broken=skip_broken, group=group
    )
    try:
        with plain_trees(tree), Meter(f"reading {name}", 1.0) as meter:
            sizes = write_recipe(request, lambda share: meter.part("images", share, 1.0), meter.say)
    except BrokenImagesError as error:
        print("\n".join(error.names))
        raise UserError(f"{error}; their names are on standard output; --skip-broken goes on without them") from None
    _announce(request, sizes, "images read")


def _announce(request: "TemplateRequest", sizes: "Expected", unit: str) -> None:
    """Print the sizes of a dataset and the command that runs it."""
    levels = ", ".join(map(str, sizes.level_sizes))
    num = f"{sizes.train + sizes.val + sizes.test:,} {unit}"
    print(f"{request.name}: {num}: train {sizes.train:,}, val {sizes.val:,}, test {sizes.test:,}; levels {levels}")
    file = request.output if request.output.is_absolute() else Path(".", request.output)
    dataset = f"{'' if file.is_absolute() else './'}{file}"
    print(f"wrote {request.output}; run: hierbench run --methods paper --dataset {dataset}")


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
    from hierbench.execution.inputs import prepare_with_progress
    from hierbench.studies.dry_run import say_notes

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
    print(f"{recipe.data.dataset}: {sizes}; {tree.num_classes} classes, height {tree.height}, levels {levels}")
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
    from hierbench.config.recipe import load_recipe, recipe_names
    from hierbench.config.recipe_source import is_dataset_file
    from hierbench.data import prepared

    is_recipe = is_dataset_file(dataset) or dataset in recipe_names()
    name = load_recipe(dataset).data.dataset if is_recipe else dataset
    print(f"{name}: unchanged since it was prepared, digest {prepared.verify(name, data_dir, dataset).digest[:12]}")


app = group("List, prepare and verify datasets.", list_, tree, new, prepare, verify)
