"""The ablation table: cross-entropy on type I, then the transformation, the fixed frame and the cosine loss added."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from hierbench.config.sections import FeatureType
from hierbench.leaderboard.board import PUBLISHED, Board
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.printed import PAPER_RUNS, paper_distance, paper_lines
from hierbench.leaderboard.statistics import Cell, Row, ranked_rows, with_best
from hierbench.leaderboard.table import CHECK, CROSS, Line, Table, Text
from hierbench.leaderboard.tables.board import MEAN, cell_of, metric_columns, seeds, shown_metrics
from hierbench.runs.store import Store
from hierbench.utils.errors import unknown_name

PARTS = {"cross_entropy": "L_CE", "transformation": "T", "frame": "HAF", "cosine": "L_COS"}
BACKBONES = {"resnet50": "ResNet50", "wrn28-8": "WideResNet28"}  # as the paper calls them


@dataclass(frozen=True)
class Variant:
    """One line of the table: what is trained, with the first `num_parts` of PARTS."""

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


@dataclass(frozen=True)
class Ablation:
    """The four variants on one dataset, in the order of VARIANTS; a row's title is its model's name."""

    dataset: str
    title: str
    protocol: str
    distance: str
    rows: Sequence[Row]
    remark: str = ""

    @classmethod
    def of(cls, dataset: str, title: str, protocol: str, distance: str, rows: Sequence[Row], remark: str = "") -> Self:
        """Mark the best mean of each metric, among the rows that have all seeds."""
        assert len(rows) == len(VARIANTS)
        best = iter(with_best(ranked_rows(rows)))
        ranked = {id(row): own for row, own in zip(ranked_rows(rows), best, strict=True)}
        return cls(dataset, title, protocol, distance, [ranked.get(id(row), row) for row in rows], remark)


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
        own = [(line, cells) for line, cells in lines if line["dataset"] == name]
        rows = []
        for variant in VARIANTS:
            marks = {part: str(int(there)) for part, there in variant.parts.items()}
            ((model, cells),) = [(line["model"], cells) for line, cells in own if marks.items() <= line.items()]
            rows.append(Row(variant.type, variant.method, model, PAPER_RUNS, PAPER_RUNS, cells))
        tables.append(Ablation.of(name, own[0][0]["title"], "published", paper_distance(name), rows))
    return tables


def ablation_from_runs(
    dataset: str,
    title: str,
    backbone: str,
    store: Store,
    ids: Sequence[Sequence[str]],
) -> Ablation:
    """Return the table of the runs on disk.

    Args:
        dataset: its name, or the file of a user's dataset.
        title: of the dataset.
        backbone: of the models.
        store: where the runs are.
        ids: those of each variant, in the order of VARIANTS.
    """
    board = Board.of(dataset, store, [run_id for group in ids for run_id in group])
    rows = [
        replace(next(row for row in board.rows if group[0] in row.runs), title=name)
        for group, name in zip(ids, model_names(backbone), strict=True)
    ]
    return Ablation.of(board.dataset, title, board.protocol, board.distance, rows, board.remark)


def model_names(backbone: str) -> list[str]:
    """Return the names of the variants' models in the table; a star marks type II."""
    name = BACKBONES.get(backbone, backbone)
    return [name, f"{name}*", f"{name}*", "HAFrame"]


def ablation_table(tables: Sequence[Ablation]) -> Table:
    """Return the variants of each dataset with their parts."""
    columns = [PAPER_BY_NAME[name] for name in shown_metrics(row for table in tables for row in table.rows)]
    found = [(table, variant, row) for table in tables for variant, row in zip(VARIANTS, table.rows, strict=True)]
    return Table(
        title="Ablation",
        columns=["Dataset", "Model", *PARTS.values(), *(column.heading for column in columns)],
        rows=[
            Line(
                [
                    Text(table.title),
                    Text(row.title, small=f"{seeds(row)} runs" if row.n < row.planned else ""),
                    *(CHECK if there else CROSS for there in variant.parts.values()),
                    *(
                        replace(cell_of(row, column, printed=table.protocol == PUBLISHED), letters="")
                        for column in columns
                    ),
                ]
            )
            for table, variant, row in found
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
                "dataset": table.dataset,
                "model": row.title,
                **{part: int(there) for part, there in variant.parts.items()},
                "n": row.n,
                "planned": row.planned,
                **metric_columns(row, [column.name for column in columns]),
            }
            for table, variant, row in found
        ],
        content={
            "protocol": tables[0].protocol,
            "rows": [
                {
                    "dataset": table.dataset,
                    "distance": table.distance,
                    "type": variant.type,
                    "method": variant.method,
                    "model": row.title,
                    **variant.parts,
                    "n": row.n,
                    "planned": row.planned,
                    "metrics": {name: _cell_content(cell) for name, cell in row.metrics.items()},
                    "runs": row.runs,
                }
                for table, variant, row in found
            ],
        },
    )


def _settings(tables: Sequence[Ablation]) -> list[str]:
    """Return one sentence per setting, with the datasets it applies to."""
    datasets: dict[str, list[str]] = {}
    for table in tables:
        remark = f"; settings: {table.remark}" if table.remark else ""
        datasets.setdefault(f"protocol {table.protocol}, distance {table.distance}{remark}.", []).append(table.dataset)
    return [f"{', '.join(names)}: {text}" for text, names in datasets.items()]


def _cell_content(cell: Cell) -> dict[str, Any]:
    content = asdict(cell)
    del content["groups"], content["interval"]  # of the leaderboard alone
    return content
