"""What a report says in words: no sentence says more than its interval.

Shapes: N images.
"""

import math

from hierbench.studies.report.accuracy import level_names
from hierbench.studies.report.against import MetricChange
from hierbench.studies.report.report_numbers import ReportNumbers
from hierbench.studies.report.resampling import IntervalEstimate
from hierbench.studies.report.rule_fitting import AT, LEAST_IMAGES
from hierbench.studies.report.unsure import GOALS
from hierbench.utils.text import one_line

NO_INFORMATION = 0.005  # bits
FEW = 50  # mistakes: a severity of fewer is uncertain
COMPARED = ("top1", "mistake_severity", "hierdist@1", "hierdist@5")
TITLES = {
    "top1": "accuracy",
    "mistake_severity": "severity of mistakes",
    "hierdist@1": "HierDist@1",
    "hierdist@5": "HierDist@5",
}
WORDS = {
    "top1": ("B is right more often", "B is right less often"),
    "mistake_severity": ("B's mistakes are milder", "B's mistakes are worse"),
    "hierdist@1": ("B's answers are nearer to the truth", "B's answers are farther from the truth"),
    "hierdist@5": ("B orders the next classes better", "B orders the next classes worse"),
}


def number(value: float | None, digits: int = 2) -> str:
    """Return a number as text, "-" where it is undefined."""
    return "-" if value is None or math.isnan(value) else f"{value:,.{digits}f}"


def with_interval(estimate: IntervalEstimate, digits: int = 2, unit: str = "") -> str:
    """Return "12.3 % [11.8, 12.9]"; without its interval where there is none."""
    text = number(estimate.value, digits) + (f" {unit}" if unit else "")
    return (
        text
        if math.isnan(estimate.low)
        else f"{text} [{number(estimate.low, digits)}, {number(estimate.high, digits)}]"
    )


def sentence_of_accuracy(report: ReportNumbers) -> str:
    """Return how often the model is right, how far off it is, and what two references of the same file give."""
    estimates = report.estimates
    right = f"{report.first.name} is right for {with_interval(estimates['top1'], 1, '%')} of the images"
    severity = estimates["mistake_severity"]
    if math.isnan(severity.value):
        return f"{right}, and makes no mistake."
    num_wrong = int((report.mistakes.distance > 0).sum())
    few = f" (of {num_wrong} mistakes alone)" if num_wrong < FEW else ""
    return f"{right}; a mistake is {with_interval(severity)} edges{few} from the truth."


def sentence_of_references(report: ReportNumbers) -> str:
    """Return whether the order of the model's next classes says more than the tree does."""
    common = report.references["commonest"]["top1"].value
    text = f"Always the commonest class would be right for {number(common, 1)} %."
    model, nearest = (side.get("hierdist@5") for side in (report.estimates, report.references["nearest"]))
    if model is None or nearest is None:
        return text
    if model.low > nearest.high or model.high < nearest.low:
        relation = "farther than" if model.value > nearest.value else "nearer than"
        more = f"Its five best classes are {relation} the best one followed by its neighbours in the tree"
    else:
        more = "Its five best classes are about as near as the best one followed by its neighbours in the tree"
    return f"{text} {more}: {number(model.value)} and {number(nearest.value)} edges."


def sentence_of_levels(report: ReportNumbers) -> str:
    """Return at which level the model is how often right, and how many mistakes stay inside."""
    names = level_names(report.tree)
    if len(names) < 2:
        return "The tree has one level, so that a mistake is a mistake."
    place = len(names) - 1
    within = report.estimates[f"level_{place}_mistakes_within"]
    accuracy = report.estimates[f"level_{place}_accuracy"]
    stay = "" if math.isnan(within.value) else f"; {with_interval(within, 1, '%')} of its mistakes stay there"
    at = f"{names[place - 1]}, of {report.tree.level_sizes[place - 1]:,} nodes"
    return f"At {at}, it is right for {with_interval(accuracy, 1, '%')} of the images{stay}."


def sentence_of_mistakes(report: ReportNumbers) -> str:
    """Return which branch and which confusion cost most."""
    branches = report.mistakes.worst_branches(1)
    confusions = report.mistakes.confusions(1)
    if not confusions:
        return "There is no mistake."
    total = int(report.mistakes.distance.sum())
    pair = confusions[0]
    text = f"{pair.target} called {pair.predicted} costs most, {pair.n:,} times {pair.distance} edges"
    if not branches:
        return f"{text}."
    return f"{branches[0].name} has {branches[0].distance / total:.0%} of all edges lost; {text}."


def how_fitted(report: ReportNumbers) -> str:
    """Return on what rules were fitted."""
    if report.validated:
        return "fitted and chosen on the validation images, measured on the others"
    return "without validation images: fitted and chosen on one half of the file, measured on the other, and vice versa"


def sentences_of_rules(report: ReportNumbers) -> list[str]:
    """Return the recommended rule for each goal, with what it does on the images it was not fitted on."""
    lines = list[str]()
    for each in report.recommended:
        values = {name.removeprefix(f"{each.choice.label} "): value for name, value in report.estimates.items()}
        right = with_interval(values["correct"], 1, "%")
        if each.goal == "ranks" and values["information"].value < NO_INFORMATION:
            rank = f"no rank is right for {AT:.0%} of the images at any threshold, so that they would say nothing"
            lines.append(f"For {GOALS[each.goal]}: none; {rank}.")
            continue
        if each.goal == "nearest":
            rest = f"{with_interval(values['edges'])} edges from the truth"
        else:
            rest = f"{with_interval(values['information'])} bits"
        short_of = ""
        if each.goal == "information" and each.fitted["correct"] < AT:
            short_of = f"; no rule was right for {AT:.0%} of the images it was fitted on"
        lines.append(f"For {GOALS[each.goal]}: {each.choice.title}, right for {right}, {rest}{short_of}.")
    return lines


def sentence_of_sets(report: ReportNumbers) -> str:
    """Return what a set of classes at 90 % costs."""
    if not report.sets:
        return ""
    first = report.sets[0]
    sure = "enough" if first["calibrated_on"] >= first["needed"] else "too few"
    return (
        f"Sets at 90 % hold {number(first['size'], 1)} classes and cover {first['coverage']:.1%}; "
        f"{first['calibrated_on']:,} calibration images are {sure} to keep that within 2 points ({first['needed']:,})."
    )


def sentence_of_change(change: MetricChange, digits: int = 2) -> str:
    """Return a sentence on one difference, "is open" where it is."""
    title = TITLES[change.metric]
    unit = " %" if change.metric == "top1" else " edges"
    numbers = f"{number(change.first, digits)} to {number(change.second, digits)}{unit}"
    gap = "" if math.isnan(change.low) else f" [{change.low:+.{digits}f}, {change.high:+.{digits}f}]"
    if change.verdict == "open":
        is_apart = change.low > 0 or change.high < 0
        corrected = ", by the test after Holm's correction" if is_apart else ""
        return f"Its {title} is open{corrected}: {numbers}{gap}."
    return f"{WORDS[change.metric][change.verdict == 'worse']}: {numbers}{gap}."


def sentences_of_changes(report: ReportNumbers) -> list[str]:
    """Return what is decided first, then what is open; [] without another model."""
    shown = [change for change in report.changes if change.metric in COMPARED and not math.isnan(change.value)]
    return [sentence_of_change(change) for change in sorted(shown, key=lambda change: change.verdict == "open")]


def short(report: ReportNumbers) -> list[str]:
    """Return the summary for a terminal, at most 15 lines."""
    images = report.first.seeds[0]
    unit = f" in {report.resampling.num_units:,} groups" if report.resampling.has_groups else ""
    seeds = f", {len(report.first.seeds)} seeds" if len(report.first.seeds) > 1 else ""
    other = "" if report.second is None else f"; B is {report.second.name}"
    about = f"{report.first.name} on {report.subject}: {len(images.targets):,} images{unit}{seeds}"
    lines = [f"{about}; brackets: 95 %{other}."]
    lines += [sentence_of_accuracy(report), sentence_of_references(report)]
    lines += [sentence_of_levels(report), sentence_of_mistakes(report)]
    if report.recommended:
        lines += [f"When unsure ({how_fitted(report)}):", *sentences_of_rules(report)]
    else:
        lines.append(
            f"When unsure: nothing is fitted: {report.absent.get('rules', f'fewer than {LEAST_IMAGES} images')}"
        )
    return [one_line(line) for line in (*lines, *sentences_of_changes(report))]
