"""A board as a table, and the cells that tables of boards share."""

from collections.abc import Sequence
from typing import Any, Literal

from hierbench.leaderboard.board_data import PUBLISHED, BoardData
from hierbench.leaderboard.columns import COSTS, PAPER_BY_NAME, PAPER_COLUMNS, Column
from hierbench.leaderboard.statistics import CitedRow, Row, RowKey, Summary, typical_widths
from hierbench.leaderboard.table import Cell, Interval, Line, Table, Text
from hierbench.utils.text import listed, one_line

Versus = Literal["", "better", "worse"]
Arrows = dict[tuple[RowKey, str], Versus]  # of (key of a row, metric)
HEADINGS = {column.name: column.heading for column in PAPER_COLUMNS}
PRINTED_DIGITS = 4  # of the half-widths in the paper's tables
STAR = "competitive: mistake severity at most 0.05 above the smallest"
SEED_KEYS = ["type", "method", "title", "metric", "seed", "value"]  # of a line per run and metric
FURTHER_KEYS = ("tuning", "scored", "seeds", "lacking")  # of JSON, not in its contract
NOT_IN_JSON = ("interval", "leads")  # fields of a cell that the contract has not
BOLD = "best of the competitive rows"
UNDERLINE = "best of all rows, if that is another one"
MEAN = "Mean +/- half-width of the 95% t-interval over runs."
TYPICAL_WIDTHS = "Half-widths over seeds and test images, the median of the rows"
MEAN_OVER_IMAGES = "Mean +/- half-width of the 95% interval over seeds and test images, both as random effects."
FEW_MISTAKES = 50  # of a run
CITED = (
    "Rows with a number in brackets were printed by other authors, who trained in other settings. They are neither "
    "ranked nor counted as runs; the column Runs says what each of them is the mean of."
)


def board_table(board: BoardData) -> Table:
    """Return a leaderboard: a line per row, with how many runs are behind it."""
    columns = board.shown
    sources = cited_sources(board)
    tuned = len({row.tuned for row in board.rows if row.tuned}) > 1 or any(row.tuning for row in board.rows)
    arrows = make_arrows(board)
    lines = []
    for row in board.rows:
        versus = [arrows.get((row.key, column.name), "") for column in columns]
        cells: list[Cell] = [
            Text(row.type),
            Text(row.title, small=lacking(row), star=row.competitive),
            *(
                make_cell(row, column, arrow, printed=board.protocol == PUBLISHED)
                for column, arrow in zip(columns, versus, strict=True)
            ),
            Text(seeds(row)),
            *([Text(_budget(row) or row.tuned or "-")] if tuned else []),
        ]
        lines.append(Line(cells, "lacking" if row.lacking else ""))
    for line in board.cited:
        cells = [Text(line.type), Text(f"{line.title} [{sources[line.source]}]")]
        cells += [make_cell(line, column, printed=True) for column in columns]
        lines.append(Line([*cells, Text(line.sample), *([Text("-")] if tuned else [])], "printed"))
    mean = MEAN_OVER_IMAGES if board.intervals == "images" else MEAN
    notes = [f"{board.dataset}, protocol {board.protocol}, distance {board.distance}. {mean}", *make_notes(board)]
    cited = [
        f"[{sources[name]}] {name}; {about.where}. {about.setting}."
        for name in sources
        if (about := next(line for line in board.cited if line.source == name))
    ]
    return Table(
        title=f"{board.dataset}, protocol {board.protocol}",
        columns=["Model", "Method", *(column.heading for column in columns), "Runs", *(["Tuning"] if tuned else [])],
        rows=lines,
        notes=[*notes, CITED] if cited else notes,
        items=cited,
        star=STAR,
        bold=BOLD,
        underline=UNDERLINE
        * any(cell.underlined for line in lines for cell in line.cells if isinstance(cell, Interval)),
        arrows=explain_arrows(len(board.tests), "seeds and images" if board.tests_images else "seeds"),
        merged=1,
        floats=True,
        records=records(board, arrows),
        content=as_json(board),
    )


def _budget(row: Row) -> str:
    """Return the search of the user's that chose a row's hyperparameters: configurations x runs of each."""
    return f"{row.tuning['trials']} x {row.tuning['runs']}" if row.tuning else ""


def make_notes(board: BoardData) -> list[str]:
    """Return the sentences on tuning, units, settings and evidence that a board's table needs."""
    notes = []
    ways = {row.tuned for row in board.rows} - {"", "-"}
    if len(ways) == 1 and not any(row.tuning for row in board.rows):
        explained = ": configurations tried on validation data x runs of each" * (" x " in "".join(ways))
        notes.append(f"Tuning: {next(iter(ways))}, for all rows{explained}.")
    elif any(" x " in way for way in ways):
        notes.append("Tuning: configurations tried on validation data x runs of each.")
    ends = [
        f"{row.title} {row.type} {one_line(end)}"
        for row in board.rows
        if row.tuning and not board.records[row.runs[0]].bases
        for end in row.tuning.get("ends", ())
    ]
    if ends:
        notes.append(f"Tuned to an end of the searched range: {'; '.join(ends)}.")
    few = [f"{row.title} {row.type}" for row in board.rows if _has_few_mistakes(row, board)]
    if few:
        notes.append(f"Severity of fewer than {FEW_MISTAKES} mistakes in a run, which says little: {', '.join(few)}.")
    widths = typical_widths(board.examples)
    if widths and board.intervals == "seeds":
        shown = [f"{column.title} {widths[column.name]:.2f}" for column in board.shown if column.name in widths]
        notes.append(f"{TYPICAL_WIDTHS}: {', '.join(shown)}.")
    units = describe_units(board)
    if units:
        notes.append(units)
    if board.remarks:
        notes.append(f"Settings: {board.settings}.")
    if board.evidence:
        notes.append(f"Evidence: {board.evidence}.")
    return notes


def _has_few_mistakes(row: Row, board: BoardData) -> bool:
    """Whether a finished run of a row has few mistakes, on which its severity rests."""
    runs = [run for run in map(board.records.get, row.runs) if run is not None and run.done]
    counts = [run.result.get("mistakes_by_distance") for run in runs]
    numbers = [sum(count) for count in counts if isinstance(count, list) and all(isinstance(n, int) for n in count)]
    return any(0 < number < FEW_MISTAKES for number in numbers)


def make_cell(row: Row | CitedRow, column: Column, versus: Versus = "", *, printed: bool = False) -> Interval:
    """Return a row's cell in a column; `printed` for the paper's cells, with half-widths of four digits."""
    cell = row.metrics.get(column.name, Summary(None, None))
    return Interval(
        cell.mean,
        cell.ci95,
        column.digits,
        PRINTED_DIGITS if printed else None,
        strong=cell.best,
        underlined=cell.leads and not cell.best,
        versus=versus,
        small=f"of {sum(value == value for value in cell.values)} of {len(cell.values)} runs"
        if cell.is_partial
        else "",
        bounds=cell.interval,
    )


def cited_sources(board: BoardData) -> dict[str, int]:
    """Return the number in brackets of each source that the board cites, from 1 in the order of the table."""
    sources = dict.fromkeys(line.source for line in board.cited)
    return {source: number for number, source in enumerate(sources, 1)}


def seeds(row: Row) -> str:
    """Return how many runs are finished, "n of planned" while some are not."""
    number = f"{row.n} of {row.planned}" if row.n < row.planned else str(row.n)
    return f"{number}, {row.state.mark}" if row.state and row.state.mark else number


def lacking(row: Row) -> str:
    """Return which seeds of the table a row lacks, "" for a row that has all."""
    if not row.lacking:
        return ""
    return f"lacks seed{'s' if len(row.lacking) > 1 else ''} {listed(row.lacking)}; not ranked"


def named(row: Row | CitedRow) -> dict[str, str]:
    """Return the type, the method and the title of a row."""
    return {"type": row.type, "method": one_line(row.method), "title": one_line(row.title)}


def records(board: BoardData, arrows: Arrows) -> list[dict[str, Any]]:
    """Return the lines of a board's CSV.

    A table of runs has the seeds that a row lacks, separated by blanks, and whether a value is better or worse than
    cross-entropy of its type; one of verified runs a column verdict; one with rows of other
    authors the columns sample and source.
    """
    metrics = [column.name for column in board.shown]
    verified = any(row.state for row in board.rows)
    content = []
    for row in board.printed_rows:
        line = {**named(row), "n": row.n, "planned": row.planned, "competitive": int(row.competitive)}
        if board.seeds:
            line["lacking"] = " ".join(map(str, row.lacking)) if isinstance(row, Row) else ""
        line |= metric_columns(row, metrics, arrows if board.seeds else None)
        if board.cited:
            sample, source = (row.sample, row.source) if isinstance(row, CitedRow) else (None, None)
            line |= {"sample": sample, "source": source}
        if verified:
            line["verdict"] = (isinstance(row, Row) and row.state) or ""
        content.append(line)
    return content


def row_records(board: BoardData) -> list[dict[str, Any]]:
    """Return a line per row for pandas: type, method and title, finished and planned runs, and metrics."""
    metrics = [column.name for column in board.shown]
    return [
        {**named(row), "n": row.n, "planned": row.planned, **metric_columns(row, metrics)} for row in board.printed_rows
    ]


def seed_records(board: BoardData) -> list[dict[str, Any]]:
    """Return a line per finished run and metric for pandas."""
    lines: list[dict[str, Any]] = []
    for row in board.rows:
        for name in (column.name for column in board.shown if column.name in row.metrics):
            values = row.metrics[name].values
            seeds = row.seeds if len(row.seeds) == len(values) else range(len(values))
            pairs = zip(seeds, values, strict=True)
            lines += [{**named(row), "metric": name, "seed": seed, "value": value} for seed, value in pairs]
    return lines


def as_json(board: BoardData) -> dict[str, Any]:
    """Return the contract of leaderboard.json."""
    content: dict[str, Any] = {"dataset": board.dataset, "protocol": board.protocol, "distance": board.distance}
    content["rows"] = [*map(_as_json, board.rows), *map(_cited_as_json, board.cited)]
    if board.seeds:
        content["seeds"] = list(board.seeds)
    if board.columns != PAPER_COLUMNS:
        content["columns"] = [column.name for column in board.columns]
    return content


def _as_json(row: Row) -> dict[str, Any]:
    """Return a row as JSON types; keys beyond the contract only where they have a value."""
    content = {name: value for name, value in vars(row).items() if name not in FURTHER_KEYS or value}
    del content["tuned"]  # which follows from the recipe
    state = content.pop("state")
    if state:
        content["verdict"] = state
    return content | {"metrics": _metrics_as_json(row)}


def _cited_as_json(line: CitedRow) -> dict[str, Any]:
    """Return a cited line with the keys of a row."""
    citation = {name: getattr(line, name) for name in ("source", "where", "setting", "sample")}
    content = {"type": line.type, "method": line.method, "title": line.title, "n": line.n, "planned": line.planned}
    return {
        **content,
        "metrics": _metrics_as_json(line),
        "runs": (),
        "competitive": line.competitive,
        "citation": citation,
    }


def _metrics_as_json(row: Row | CitedRow) -> dict[str, Any]:
    return {
        name: {key: value for key, value in vars(cell).items() if key not in NOT_IN_JSON}
        for name, cell in row.metrics.items()
    }


def make_arrows(board: BoardData) -> Arrows:
    """Return where a table's rows differ significantly from cross-entropy of their type, see `Board.tests`."""
    higher = {column.name: column.higher for column in board.shown}
    return {
        (row, name): "better" if (gap.mean > 0) == higher[name] else "worse"
        for (row, name), gap in board.tests.items()
        if gap.significant
    }


def metric_columns(row: Row | CitedRow, metrics: Sequence[str], arrows: Arrows | None = None) -> dict[str, Any]:
    """Return a row's CSV columns: of each metric its mean, its half-width, whether it is best, or leads, and arrow."""
    columns: dict[str, Any] = {}
    for metric in metrics:
        cell = row.metrics.get(metric, Summary(None, None))
        columns |= {metric: cell.mean, f"{metric} ci95": cell.ci95, f"{metric} best": int(cell.best)}
        columns[f"{metric} leads"] = int(cell.leads)
        if arrows is not None:
            columns[f"{metric} versus ce"] = arrows.get((row.key, metric), "")
    return columns


def explain_arrows(num_tests: int, source: str = "seeds") -> str:
    """Return the end of the sentence that explains the arrows, "" for a table without tests."""
    if not num_tests:
        return ""
    tests = "1 comparison" if num_tests == 1 else f"{num_tests:,} comparisons"
    return f"worse than cross-entropy of its type: p below 0.05 over {source} after Holm's correction over {tests}"


def describe_units(board: BoardData) -> str:
    """Return a sentence on the units of the columns that are not the paper's, or ""."""
    titles: dict[str, list[str]] = {}
    for column in board.shown:
        if column.name not in PAPER_BY_NAME and column.name not in COSTS:
            titles.setdefault(f"in {column.unit}" if column.unit else "between 0 and 1", []).append(column.title)
    parts = [f"{', '.join(titles_of_unit)} {unit}" for unit, titles_of_unit in titles.items()]
    return f"{'; '.join(parts)}." if parts else ""
