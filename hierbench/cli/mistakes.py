"""`hierbench mistakes`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hierbench.cli.command import command, write_result
from hierbench.config.options import DataOption, DatasetOption, ProtocolOfRuns, RequestOption
from hierbench.utils.errors import UserError


@command("mistakes ce:type-I:0 haframe:type-II:0 --dataset shapes")
def mistakes(
    dataset: DatasetOption,
    which: Annotated[
        list[str],
        typer.Argument(metavar="A B", help="Two runs, each as METHOD[:TYPE[:SEED]] or the beginning of an id."),
    ],
    runs: Annotated[Path, "Folder of all runs; --runs A B names two runs in the default folder."] = Path("runs"),
    data_dir: DataOption = Path("data"),
    output: Annotated[Path | None, "HTML file; by default RUNS/mistakes-DATASET.html."] = None,
    protocol: ProtocolOfRuns = None,
    request: RequestOption = None,
    names: Annotated[Path | None, "File that maps node names to words, like ImageNet's words.txt."] = None,
    limit: Annotated[
        int, typer.Option(min=0, max=5000, help="Number of images in the page; 0: statistics only.")
    ] = 400,
) -> None:
    """Write a page that compares the mistakes of two runs.

    It has the images, the predictions, and where their paths in the tree diverge.
    """
    if len(which) == 1 and not runs.is_dir():  # `--runs A B`, in the default folder
        which = [str(runs), *which]
        runs = Path("runs")
    if len(which) != 2:
        raise UserError(f"name two runs, as in ce:type-I:0 haframe:type-II:0; got {' '.join(which)}")
    from hierbench.config.recipe import load_recipe
    from hierbench.figures.mistakes.mistakes_page import describe_choice, read_names, render
    from hierbench.figures.mistakes.pair import choose, read_pair
    from hierbench.leaderboard.board import Board
    from hierbench.leaderboard.selection import named_run
    from hierbench.runs.record_reader import read_records

    recipe = load_recipe(dataset)
    board = Board.of(dataset, read_records(runs), protocol=protocol, scored=False, request=request)
    a, b = (named_run(name, board, protocol) for name in which)
    pair = read_pair(a, b, data_dir, board.records)
    if pair.prepared.vectors is not None:
        limit = 0
        print(f"note: {recipe.data.dataset} has features and no images to show", file=sys.stderr, flush=True)
    chosen = choose(pair.heights, pair.between, pair.confidence, limit)
    text = render(pair, chosen, None if names is None else read_names(names, pair), recipe.title)
    target = output or runs / f"mistakes-{recipe.dataset}.html"
    write_result(text, target, follow=output is not None)  # links in a runs folder are not followed
    for note in (describe_choice(pair, chosen) if limit else "", pair.prepared.meta.get("notice", "")):
        if note:
            print(f"note: {note}", file=sys.stderr, flush=True)
    print(f"wrote {target} ({len(text.encode()) / 1e6:.1f} MB)")
