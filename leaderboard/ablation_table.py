"""The ablation table: cross-entropy on type I, then the transformation, the fixed frame and the cosine loss added."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from hierbench.config.sections import FeatureType
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.board_data import PUBLISHED
from hierbench.leaderboard.columns import PAPER_COLUMNS
from hierbench.leaderboard.paper_tables import PAPER_RUNS, paper_distance, paper_lines
from hierbench.leaderboard.statistics import Row, Summary, on_ranked, with_best
from hierbench.leaderboard.table import CHECK, CROSS, Line, Table, Text
from hierbench.leaderboard.tables.board_table import MEAN, make_cell, metric_columns, seeds
from hierbench.utils.errors import unknown_name

PARTS = {"cross_entropy": "L_CE", "transformation": "T", "frame": "HAF", "cosine": "L_COS"}
BACKBONES = {"resnet50": "ResNet50", "wrn28-8": "WideResNet28"}  # as the paper calls them


@dataclass(frozen=True)
class Variant:
    """One line of the table: a variant with the first `num_parts` of PARTS."""

    type: FeatureType
    method: str
    num_parts: int
    name: str

    @property
    def parts(self) -> dict[str, bool]:
        """The columns with check marks."""
        return {part: position < self.num_parts for position, part in enumerate(PARTS)}


FRAME_ALONE = Variant("type-II", "haframe", 3, "haframe (alpha = 0)")
VARIANTS = (
    Variant("type-I", "ce", 1, "ce"),
    Variant("type-II", "ce", 2, "ce"),
    FRAME_ALONE,
    Variant("type-II", "haframe", 4, "haframe"),
)


Ablation = tuple[str, Board]
"""A dataset's title, and its four variants in the order of VARIANTS, which is that of a board; a row's title is its
model's name."""


def with_best_means(board: Board) -> Board:
    """Mark the best mean of each metric, among the rows that have all seeds."""
    return replace(board, rows=on_ranked(board.rows, with_best))


def ablation_from_paper(dataset: str) -> list[Ablation]:
    """Return the published table of one dataset, or of "all" (Liang & Davis, ICCV 2023, the ablation study).

    Raises:
        UserError: the paper has no such dataset.
    """
    lines = paper_lines("ablation")
    names = list(dict.fromkeys(line["dataset"] for line, _ in lines))
    if dataset not in ("all", *names):
        raise unknown_name("ablation of the paper for dataset", dataset, ["all", *names])
    tables = []
    for name in names if dataset == "all" else [dataset]:
        dataset_lines = [(line, cells) for line, cells in lines if line["dataset"] == name]
        rows = []
        for variant in VARIANTS:
            marks = {part: str(int(is_used)) for part, is_used in variant.parts.items()}
            ((line, cells),) = [(line, cells) for line, cells in dataset_lines if marks.items() <= line.items()]
            model = line["model"]
            rows.append(Row(variant.type, variant.method, model, PAPER_RUNS, PAPER_RUNS, cells))
        board = Board(name, PUBLISHED, paper_distance(name), tuple(rows))
        tables.append((dataset_lines[0][0]["title"], with_best_means(board)))
    return tables


def ablation_board(board: Board, backbone: str, ids: Sequence[Sequence[str]]) -> Board:
    """Return the board of an ablation from the board of its runs; `ids` are the ids of each variant."""
    name = BACKBONES.get(backbone, backbone)
    names = [name, f"{name}*", f"{name}*", "HAFrame"]  # a star marks type II
    rows = [
        replace(next(row for row in board.rows if group[0] in row.runs), title=title)
        for group, title in zip(ids, names, strict=True)
    ]
    return with_best_means(replace(board, rows=tuple(rows)))


def ablation_table(tables: Sequence[Ablation]) -> Table:
    """Return the variants of each dataset with their parts."""
    columns = [column for column in PAPER_COLUMNS if any(column in board.shown for _, board in tables)]
    entries = [
        (title, board, variant, row)
        for title, board in tables
        for variant, row in zip(VARIANTS, board.rows, strict=True)
    ]
    return Table(
        title="Ablation",
        columns=["Dataset", "Model", *PARTS.values(), *(column.heading for column in columns)],
        rows=[
            Line(
                [
                    Text(title),
                    Text(row.title, small=f"{seeds(row)} runs" if row.n < row.planned else ""),
                    *(CHECK if is_used else CROSS for is_used in variant.parts.values()),
                    *(make_cell(row, column, printed=board.protocol == PUBLISHED) for column in columns),
                ]
            )
            for title, board, variant, row in entries
        ],
        notes=[
            "L_CE: cross-entropy loss. T: transformation, type-II instead of type-I (the star). HAF: classifier fixed "
            "to the hierarchy-aware frame. L_COS: cosine loss.",
            MEAN,
            *_settings(tables),
        ],
        bold="best mean of the dataset, of rows with all seeds",
        merged=1,
        floats=True,
        records=[
            {
                "dataset": board.dataset,
                "model": row.title,
                **{part: int(is_used) for part, is_used in variant.parts.items()},
                "n": row.n,
                "planned": row.planned,
                **metric_columns(row, [column.name for column in columns]),
            }
            for _, board, variant, row in entries
        ],
        content={
            "protocol": tables[0][1].protocol,
            "rows": [
                {
                    "dataset": board.dataset,
                    "distance": board.distance,
                    "type": variant.type,
                    "method": variant.method,
                    "model": row.title,
                    **variant.parts,
                    "n": row.n,
                    "planned": row.planned,
                    "metrics": {name: _cell_content(cell) for name, cell in row.metrics.items()},
                    "runs": row.runs,
                }
                for _, board, variant, row in entries
            ],
        },
    )


def _settings(tables: Sequence[Ablation]) -> list[str]:
    """Return one sentence per setting, with the datasets it applies to."""
    datasets: dict[str, list[str]] = {}
    for _, board in tables:
        remark = f"; settings: {board.settings}" if board.remarks else ""
        datasets.setdefault(f"protocol {board.protocol}, distance {board.distance}{remark}.", []).append(board.dataset)
    return [f"{', '.join(names)}: {text}" for text, names in datasets.items()]


def _cell_content(cell: Summary) -> dict[str, Any]:
    content = asdict(cell)
    del content["interval"]  # only of the leaderboard
    return content
