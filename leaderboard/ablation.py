"""The ablation table: cross-entropy on type I, then the transformation, the fixed frame and the cosine loss added."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap
from typing import Any

from hierbench.config.sections import FeatureType
from hierbench.leaderboard.board import PAPER_RUNS, board_from_runs, paper_distance, paper_lines
from hierbench.leaderboard.render import (
    HEADINGS,
    csv_text,
    metric_columns,
    number,
    pipe_table,
    seeds,
    shown_metrics,
    tex_template,
)
from hierbench.leaderboard.statistics import Cell, Row, mark_best, ranked_rows
from hierbench.leaderboard.tex import latex_escaped
from hierbench.runs.store import Store
from hierbench.utils.errors import unknown_name
from hierbench.utils.files import as_json_text
from hierbench.utils.text import markdown_escaped

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


@dataclass
class Ablation:
    """The four variants on one dataset, in the order of VARIANTS; a row's title is its model's name."""

    dataset: str
    title: str
    protocol: str
    distance: str
    rows: list[Row]
    remark: str = ""

    def __post_init__(self) -> None:
        """Mark the best mean of each metric, among the rows that have all seeds."""
        assert len(self.rows) == len(VARIANTS)
        mark_best(ranked_rows(self.rows))


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
        tables.append(Ablation(name, own[0][0]["title"], "published", paper_distance(name), rows))
    return tables


def ablation_from_runs(
    dataset: str,
    title: str,
    backbone: str,
    store: Store,
    ids: Sequence[Sequence[str]],
    rejected: Collection[str] = (),
) -> Ablation:
    """Return the table of the runs on disk.

    Args:
        dataset: its name, or the file of a user's dataset.
        title: of the dataset.
        backbone: of the models.
        store: where the runs are.
        ids: those of each variant, in the order of VARIANTS.
        rejected: ids of runs that do not count.
    """
    board = board_from_runs(dataset, store, [run_id for group in ids for run_id in group], rejected=rejected)
    rows = [next(row for row in board.rows if group[0] in row.runs) for group in ids]
    for row, name in zip(rows, model_names(backbone), strict=True):
        row.title = name
    return Ablation(board.dataset, title, board.protocol, board.distance, rows, board.remark)


def model_names(backbone: str) -> list[str]:
    """Return the names of the variants' models in the table; a star marks type II."""
    name = BACKBONES.get(backbone, backbone)
    return [name, f"{name}*", f"{name}*", "HAFrame"]


def model_and_runs(row: Row) -> str:
    """Return the model's name, with the number of runs while some are missing."""
    return f"{row.title} ({seeds(row)} runs)" if row.n < row.planned else row.title


def markdown(tables: Sequence[Ablation]) -> str:
    """Return a markdown table in the paper's look: best means bold."""
    metrics, lines = metrics_of(tables), []
    for table in tables:
        for variant, row in zip(VARIANTS, table.rows, strict=True):
            dataset = markdown_escaped(table.title) if row is table.rows[0] else ""
            marks = ["✓" if there else "✗" for there in variant.parts.values()]
            numbers = [number(row.metrics.get(metric), "**{}**") for metric in metrics]
            lines.append([dataset, model_and_runs(row), *marks, *numbers])
    headings = ["Dataset", "Model", *PARTS.values(), *(HEADINGS[metric] for metric in metrics)]
    legend = [
        "L_CE: cross-entropy loss. T: transformation, type-II instead of type-I (the star). HAF: classifier fixed to "
        "the hierarchy-aware frame. L_COS: cosine loss.",
        "Mean +/- half-width of the 95% t-interval over runs. **Bold**: best mean of the dataset, of rows with all "
        "seeds.",
        *map(markdown_escaped, settings(tables)),
    ]
    return "\n".join([pipe_table(lines, headings), "", *legend, ""])


def metrics_of(tables: Sequence[Ablation]) -> list[str]:
    """Return the metrics that at least one row has, in the paper's order."""
    return shown_metrics(row for table in tables for row in table.rows)


def settings(tables: Sequence[Ablation]) -> list[str]:
    """Return one sentence per setting, with the datasets it applies to."""
    datasets: dict[str, list[str]] = {}
    for table in tables:
        remark = f"; settings: {table.remark}" if table.remark else ""
        datasets.setdefault(f"protocol {table.protocol}, distance {table.distance}{remark}.", []).append(table.dataset)
    return [f"{', '.join(names)}: {text}" for text, names in datasets.items()]


def as_csv(tables: Sequence[Ablation]) -> str:
    """Return CSV with numbers at full precision."""
    metrics = metrics_of(tables)
    return csv_text(
        [
            {
                "dataset": table.dataset,
                "model": row.title,
                **{part: int(there) for part, there in variant.parts.items()},
                "n": row.n,
                "planned": row.planned,
                **metric_columns(row, metrics),
            }
            for table in tables
            for variant, row in zip(VARIANTS, table.rows, strict=True)
        ]
    )


def as_json(tables: Sequence[Ablation]) -> str:
    """Return JSON with one entry per variant and dataset; NaN becomes null."""
    rows = [
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
        for table in tables
        for variant, row in zip(VARIANTS, table.rows, strict=True)
    ]
    return as_json_text({"schema": 1, "protocol": tables[0].protocol, "rows": rows})


def _cell_content(cell: Cell) -> dict[str, Any]:
    content = asdict(cell)
    del content["groups"], content["interval"]  # of the leaderboard alone
    return content


def latex(tables: Sequence[Ablation]) -> str:
    """Return a LaTeX document with the table in the paper's look; two comments mark the table itself."""

    def stacked(title: str) -> str:
        lines = map(latex_escaped, wrap(title, 12, break_long_words=False))  # the column is narrow
        return r"\\".join(f"{{}}{line}" if line[:1] in "[*" else line for line in lines)  # no argument of the \\ before

    return tex_template("ablation.tex.j2").render(
        tables=tables,
        variants=VARIANTS,
        parts=[r"$\mathcal{L}_{CE}$", r"$\mathcal{T}(.)$", r"$HAF$", r"$\mathcal{L}_{COS}$"],
        metrics=metrics_of(tables),
        settings=settings(tables),
        stacked=stacked,
        model=model_and_runs,
    )


FORMATS: dict[str, Callable[[Sequence[Ablation]], str]] = {
    "markdown": markdown,
    "latex": latex,
    "csv": as_csv,
    "json": as_json,
}
