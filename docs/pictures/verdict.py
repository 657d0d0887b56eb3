"""Writes the verdict into the pages that show it, and its pictures: `uv run python docs/pictures/verdict.py`.

The README has the claims as sentences, docs/verdict.md the table, the checks and the order of methods. A test compares
both with what the published tables say.
"""

import re
from itertools import combinations
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hierbench.leaderboard import verdict_chart
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.columns import PAPER_BY_NAME
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.open_board import open_boards
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.pictures.style import house_style, write_figure
from hierbench.leaderboard.set_ranks import RANK_METRICS, RankOrder, rank_rows
from hierbench.leaderboard.verdict import CHOICE_NETWORK, VerdictRows
from hierbench.leaderboard.verdict_table import claim_sentence, verdict_table
from hierbench.utils.files import read_json
from hierbench.utils.text import counted

ROOT = Path(__file__).resolve().parents[2]
LINE = 0.19  # inches of a method in the picture of their order


def seconds_of_training(boards: list[Board], evidence: VerdictRows) -> dict[str, float]:
    """Return {METHOD:TYPE: the median seconds of its trainings}, of the tables of one network."""
    seconds: dict[str, list[float]] = {}
    for board in boards:
        if evidence.protocol.network_of(board.dataset) == CHOICE_NETWORK:
            for row in board.rows:
                runs = [board.records[run_id] for run_id in row.runs]
                seconds.setdefault(f"{row.method}:{row.type}", []).extend(run.seconds for run in runs if not run.bases)
    return {name: float(np.median(values)) for name, values in seconds.items() if values}


def readme_part(evidence: VerdictRows) -> str:
    """Return the picture, and the ten claims as a list."""
    if not any(evidence.rows.values()):
        return NO_RUNS
    lines = [f"- {claim_sentence(result, evidence)}" for result in evidence.claims]
    return "\n".join([PICTURE.format(folder="docs/pictures"), "", conclusion(evidence), "", *lines])


def conclusion(evidence: VerdictRows) -> str:
    """Return which claims hold, which do not, which are open, and which of these wait for runs."""
    results = evidence.claims
    ids_by_verdict = {
        verdict: [f"({result.claim.id})" for result in results if evidence.verdict_of(result) == verdict]
        for verdict in ("yes", "no", "open")
    }
    shown = [f"{verdict.capitalize()}: {', '.join(ids) or 'none'}." for verdict, ids in ids_by_verdict.items()]
    waiting = [f"({result.claim.id})" for result in results if not evidence.is_settled(result)]
    if waiting:
        shown.append(
            f"Not all sets have the runs of {', '.join(waiting)}, which can only lower the others' corrected p."
        )
    for result in results:
        number = len(evidence.sets_without(result))
        if number and evidence.is_settled(result):
            shown.append(
                f"({result.claim.id}) lacks runs on {counted(number, 'set')} shown beside, which cannot change it."
            )
    return " ".join(shown)


def page_part(evidence: VerdictRows, orders: dict[str, RankOrder]) -> str:
    """Return the table of claims, the checks, and the mean ranks."""
    if not any(evidence.rows.values()):
        return NO_RUNS
    names = [result.claim.id for result in evidence.claims]
    checks = ["| Check | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    leaving_out = dict[str, list[float]]()
    for check in evidence.checks():
        left_out = check["check"].removeprefix("without ")
        if left_out in evidence.protocol.decide:
            for name, cell in check["claims"].items():
                leaving_out.setdefault(name, []).append(cell["p"])
            continue
        cells = [check["claims"].get(name) for name in names]
        shown = ["" if cell is None else f"{_effects(cell['effects'])} ({cell['p']:.2g})" for cell in cells]
        checks.append(f"| {check['check']} | " + " | ".join(shown) + " |")
    if leaving_out:
        largest = [f"({max(leaving_out[name]):.2g})" if name in leaving_out else "" for name in names]
        checks.append(f"| without any one set, largest p | {' | '.join(largest)} |")
    parts = [conclusion(evidence), render(verdict_table(evidence)).strip(), "### Checks", CHECKS, "\n".join(checks)]
    first = orders[RANK_METRICS[0]]
    if first.rows:
        head = "| Method | " + " | ".join(PAPER_BY_NAME[metric].title for metric in orders) + " | Seconds |"
        places = {metric: {row.name: row.mean_rank for row in order.rows} for metric, order in orders.items()}
        lines = [head, "|---" * (len(orders) + 2) + "|"]
        for row in first.rows:
            ranks = " | ".join(f"{places[metric][row.name]:.1f}" for metric in orders)
            lines.append(f"| {row.title} | {ranks} | {row.seconds:.0f} |")
        parts += ["### The order of methods", RANKS.format(n=first.n), "\n".join(lines), decided_pairs(orders)]
    if any(evidence.answers.values()):
        lines = [f"- {claim_sentence(result, evidence)}" for result in evidence.answer_claims]
        parts += ["### Answers when unsure", ANSWERS, "\n".join(lines)]
    return "\n\n".join(parts)


def decided_pairs(orders: dict[str, RankOrder]) -> str:
    """Return which pairs of methods the test tells apart, by metric, those ahead of one method together."""
    lines = [PAIRS]
    for metric, order in orders.items():
        undecided = set(map(frozenset, order.undecided))
        ahead: dict[str, list[str]] = {}
        for first, second in combinations(order.rows, 2):
            if frozenset((first.name, second.name)) not in undecided:
                ahead.setdefault(second.title, []).append(first.title)
        parts = [f"{', '.join(others)} ahead of {title}" for title, others in ahead.items()]
        number = counted(sum(map(len, ahead.values())), "pair")
        total = len(order.rows) * (len(order.rows) - 1) // 2
        lines.append(f"- {PAPER_BY_NAME[metric].title}: {number} of {total}" + f": {'; '.join(parts)}." * bool(parts))
    return "\n".join(lines)


def answers_part() -> str:
    """Return what rules answer on cross-entropy of type II, as means over the published tables with answers."""
    values: dict[str, list[list[float]]] = {}
    files = sorted((ROOT / "leaderboard/published").glob("*-answers.json"))
    for file in files:
        for row in read_json(file)["rows"]:
            if (row["method"], row["type"]) == ("ce", "type-II"):
                values.setdefault(row["rule"], []).append([row[name] for name in ANSWER_NAMES])
    means = {rule: np.mean(numbers, axis=0) for rule, numbers in values.items() if len(numbers) == len(files)}
    lines = ["| Rule | Correct (%) | Coverage (%) | hF (%) | Edges |", "|---|---|---|---|---|"]
    for rule, (correct, coverage, hf, edges) in sorted(means.items(), key=lambda pair: pair[1][0]):
        lines.append(f"| `{rule}` | {correct:.1f} | {coverage:.1f} | {hf:.1f} | {edges:.2f} |")
    return "\n".join([DEPLOYED.format(n=len(files)), "", *lines])


ANSWER_NAMES = ("correct", "coverage", "hf", "edges")
DEPLOYED = "Means over {n} tables, of cross-entropy on type II, in ascending order of correct answers."
ANSWERS = (
    "A family of its own, of four rows on Lite0: linear probe, plain network, cross-entropy and HAFrame on type II."
)
NO_RUNS = "No set has its runs yet; every claim is open."
PICTURE = "![The effect of each claim by image set, with its estimate over sets]({folder}/verdict.svg)"
CHECKS = "Effects in favour of a claim (each part of it), and p before the correction."
PAIRS = "Pairs that differ (signed-rank tests over the sets, Holm over all pairs):\n"
RANKS = (
    "Mean ranks over {n} sets on Lite0, type II, 1 for the best, and the median seconds of a training.\n\n"
    "![Mean ranks and methods that do not differ](pictures/ranks.svg)"
)


def _effects(effects: list[float | None]) -> str:
    return ", ".join("-" if effect is None else f"{effect:+.1f}" for effect in effects)


def filled(page: str, part: str) -> str:
    """Return a page with a part between its two lines."""
    mark = r"(?<=<!-- verdict -->\n).*?(?=\n<!-- end of the verdict -->)"
    return re.sub(mark, lambda _: part, page, flags=re.DOTALL)


def parts_of(boards: list[Board]) -> dict[str, str]:
    """Return what each page shows."""
    evidence = VerdictRows.of(boards)
    seconds = seconds_of_training(boards, evidence)
    orders = {metric: rank_rows(evidence, metric, seconds) for metric in RANK_METRICS}
    picture = PICTURE.format(folder="pictures") if any(evidence.rows.values()) else NO_RUNS
    return {
        "README.md": readme_part(evidence),
        "docs/index.md": picture,
        "docs/verdict.md": page_part(evidence, orders),
        "docs/answers.md": answers_part(),
    }


def main() -> None:
    """Write pages and pictures."""
    boards = open_boards([ROOT / "leaderboard/published"])
    evidence = VerdictRows.of(boards)
    order = rank_rows(evidence, RANK_METRICS[0], seconds_of_training(boards, evidence))
    with house_style():
        if any(evidence.rows.values()):
            write_figure(verdict_chart.draw(evidence), ROOT / "docs/pictures/verdict.svg")
        if order.rows:
            write_figure(draw_order(order, RANK_METRICS[0]), ROOT / "docs/pictures/ranks.svg")
    for page, part in parts_of(boards).items():
        path = ROOT / page
        path.write_text(filled(path.read_text(encoding="utf-8"), part), encoding="utf-8")


def draw_order(order: RankOrder, metric: str) -> Figure:
    """Draw a critical-difference diagram (Demsar, JMLR 7, 2006; Benavoli et al., JMLR 17, 2016), the best on top."""
    num = len(order.rows)
    groups = undecided_groups(order)
    figure = style.new_figure(style.TWO_COLUMNS, 0.9 + LINE * num)
    axes = figure.subplots()
    for place, row in enumerate(order.rows):
        axes.plot([0.6, row.mean_rank], [place, place], color=style.LIGHT, linewidth=0.8, zorder=0)
        axes.plot(row.mean_rank, place, "o", color=style.BLACK)
        seconds = f", {row.seconds:.0f} s" if row.seconds == row.seconds else ""
        text = f"{row.mean_rank:.1f}{seconds}"
        axes.annotate(text, (row.mean_rank, place), (6, 0), textcoords="offset points", va="center")
    for lane, (first, last) in enumerate(groups):
        x = num + 1.4 + 0.35 * lane
        axes.plot([x, x], [first - 0.15, last + 0.15], color=style.BLUE, linewidth=2.5, solid_capstyle="butt")
    axes.set_yticks(range(num), [row.title for row in order.rows])
    axes.set_ylim(num - 0.4, -0.6)
    axes.set_xlim(0.6, num + 1.8 + 0.35 * len(groups))
    axes.set_xticks(range(1, num + 1, 2))
    title = PAPER_BY_NAME[metric].title
    axes.set_xlabel(f"mean rank by {title.lower()} over {order.n} image sets")
    style.note(axes, "blue bars: methods of which no two differ (signed-rank tests, Holm); seconds of a training")
    return figure


def undecided_groups(order: RankOrder) -> list[tuple[int, int]]:
    """Return the longest runs of neighbours, (first, last) places, in which no pair differs; two methods at least."""
    undecided = {frozenset(pair) for pair in order.undecided}
    names = [row.name for row in order.rows]

    def is_group(first: int, last: int) -> bool:
        return all(frozenset(pair) in undecided for pair in combinations(names[first : last + 1], 2))

    groups = list[tuple[int, int]]()
    for first in range(len(names)):
        last = max((last for last in range(first, len(names)) if is_group(first, last)), default=first)
        if last > first and not (groups and groups[-1][1] >= last):
            groups.append((first, last))
    return groups


if __name__ == "__main__":
    main()
