"""The report on a model's predictions as a value: numbers by part, sentences, JSON; see `make_report`.

Shapes: N images, K classes, L levels.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hierbench.answers.choices import RuleChoice
from hierbench.answers.deployed_rule import DeployedRule
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.studies.report.accuracy import by_level, calibration_error, level_names, references, summary
from hierbench.studies.report.against import (
    FourFields,
    MetricChange,
    Moved,
    change_records,
    changes,
    four_fields,
    moved,
)
from hierbench.studies.report.mistakes import Mistakes, as_records
from hierbench.studies.report.resampling import IntervalEstimate, Quantity, Resampling, estimates
from hierbench.studies.report.rule_fitting import (
    LEAST_IMAGES,
    REPORT_RULES,
    ImageAnswers,
    answer_images,
    report_choices,
)
from hierbench.studies.report.scored_images import ScoredImages, same_images
from hierbench.studies.report.unsure import GOALS, Recommended, curves, recommend, rule_quantities, sets_of
from hierbench.studies.scoring.scores import check_resamples
from hierbench.utils.errors import UserError, unknown_name

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
REPORT_PARTS = ("summary", "levels", "confusions", "branches", "classes", "rules", "recommended", "sets", "against")


@dataclass(frozen=True)
class ReportSettings:
    """What a report computes.

    Attributes:
        rules: decision rules, see `hierbench.answers.choices.parse_choices`.
        resamples: of the bootstrap; 0 for no intervals.
        seed: of all draws.

    Raises:
        InputError: too few resamples for an interval, or too many.
    """

    rules: Sequence[str] = REPORT_RULES
    resamples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        check_resamples(self.resamples)


DEFAULT_SETTINGS = ReportSettings()


@dataclass(frozen=True, eq=False)
class Side:
    """One model: its files, what rules answer for them, and all numbers that are compared.

    Attributes:
        name: in sentences.
        seeds: its files, a seed each, in the order of the same images.
        answers: per seed; () without the scores of all classes, or with too few images.
        quantities: {name: number from sums over the images}.
    """

    name: str
    seeds: Sequence[ScoredImages]
    answers: Sequence[ImageAnswers]
    quantities: Mapping[str, Quantity]

    def named(self, prefix: str) -> dict[str, Quantity]:
        """Return the quantities whose names begin so, by the rest."""
        return {name.removeprefix(prefix): each for name, each in self.quantities.items() if name.startswith(prefix)}


@dataclass(frozen=True, eq=False, repr=False)
class ModelReport:
    """What a model gets wrong, what to answer when it is unsure, and whether another one is better.

    Attributes:
        tree: over the K classes.
        subject: the name of the tree.
        first: the model.
        second: the other one, or None.
        choices: rules and at which correctness.
        resampling: of all intervals.
        train_counts: [K] training images, None where unknown.
        validated: whether rules were fitted on validation images.
    """

    tree: Hierarchy
    subject: str
    first: Side
    second: Side | None
    choices: Sequence[RuleChoice]
    resampling: Resampling
    train_counts: IntArray | None = None
    validated: bool = False
    absent: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def estimates(self) -> dict[str, IntervalEstimate]:
        """{name: number with its interval} of the model."""
        return estimates(self.first.quantities, self.resampling)

    @cached_property
    def references(self) -> dict[str, dict[str, IntervalEstimate]]:
        """{"commonest" or "nearest": {metric: number with its interval}}, of the same file."""
        reference_quantities = references(self.first.seeds, self.tree)
        return {name: estimates(quantities, self.resampling) for name, quantities in reference_quantities.items()}

    @cached_property
    def mistakes(self) -> Mistakes:
        """Where mistakes go, of all seeds."""
        seeds = self.first.seeds
        return Mistakes.of(seeds[0].targets, [each.top for each in seeds], self.tree, self.train_counts)

    @cached_property
    def recommended(self) -> list[Recommended]:
        """The rule for each of three goals; [] without rules."""
        return recommend(self.first.answers, self.choices) if self.first.answers else []

    @cached_property
    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """{title of a rule: (coverage, share right)}; {} without rules."""
        return curves(self.first.answers[0], self.choices) if self.first.answers else {}

    @cached_property
    def sets(self) -> list[dict[str, Any]]:
        """Sets of classes at 90 %; [] without scores."""
        return sets_of(self.first.answers[0]) if self.first.answers else []

    @cached_property
    def changes(self) -> list[MetricChange]:
        """The other model's numbers minus this one's; [] without another."""
        return [] if self.second is None else changes(self.first.quantities, self.second.quantities, self.resampling)

    @cached_property
    def four_fields(self) -> FourFields | None:
        """How many images both, one or none gets right."""
        return None if self.second is None else four_fields(self.first.seeds, self.second.seeds, self.tree)

    @cached_property
    def moved(self) -> list[Moved]:
        """The classes and branches that changed most."""
        return [] if self.second is None else moved(self.first.seeds, self.second.seeds, self.tree)

    @property
    def rule(self) -> DeployedRule:
        """The rule that is recommended for the most information, ready for use; a UserError without rules."""
        return self.rule_for("information")

    def rule_for(self, goal: str) -> DeployedRule:
        """Return the rule that is recommended for a goal: "information", "nearest" or "ranks"."""
        if goal not in GOALS:
            raise unknown_name("goal", goal, GOALS)
        if not self.first.answers:
            raise UserError(f"no rule was fitted: {self.absent['rules']}")
        choice = next(each.choice for each in self.recommended if each.goal == goal)
        for_use = self.first.answers[0].for_use
        used = for_use.temperature if choice.temperature is None else choice.temperature
        kind = for_use.images.kind
        assert kind is not None
        return DeployedRule(choice.rule, for_use.parameters[choice.label], used, kind, self.tree)

    def levels(self) -> list[dict[str, Any]]:
        """Return a record for each level, coarsest first."""
        records = list[dict[str, Any]]()
        for number, name in enumerate(level_names(self.tree), start=1):
            values = {
                key: self.estimates.get(f"level_{number}_{key}")
                for key in ("accuracy", "macro_accuracy", "ece", "ece_temperature", "mistakes_within")
            }
            numbers = {
                key: None if each is None or np.isnan(each.value) else each.value for key, each in values.items()
            }
            intervals = {key: each.content() for key, each in values.items() if each is not None}
            sizes = {"nodes": self.tree.level_sizes[number - 1]}
            records.append({"level": number, "name": name, **sizes, **numbers, "intervals": intervals})
        return records

    def rules(self) -> list[dict[str, Any]]:
        """Return a record for each rule at each correctness."""
        if not self.first.answers:
            return []
        for_use = self.first.answers[0].for_use
        return [
            {
                "rule": choice.rule.name,
                "title": choice.title,
                "parameters": dict(for_use.parameters[choice.label]),
                "temperature": for_use.temperature if choice.temperature is None else choice.temperature,
                "at": choice.accuracy,
                **{name: each.value for name, each in self._of_rule(choice).items()},
                "intervals": {name: each.content() for name, each in self._of_rule(choice).items()},
            }
            for choice in self.choices
        ]

    def _of_rule(self, choice: RuleChoice) -> dict[str, IntervalEstimate]:
        prefix = f"{choice.label} "
        return {name.removeprefix(prefix): each for name, each in self.estimates.items() if name.startswith(prefix)}

    def content(self) -> dict[str, Any]:
        """Return the numbers for JSON: shares in per cent but those of sets, distances in edges."""
        images = self.first.seeds[0]
        names = ("top1", "mistake_severity", "hierdist@1", "hierdist@5")
        return {
            "schema": SCHEMA,
            "name": self.first.name,
            "of": self.subject,
            "distance": self.tree.distance,
            "images": len(images.targets),
            "groups": self.resampling.num_units if self.resampling.has_groups else None,
            "seeds": len(self.first.seeds),
            "resamples": self.resampling.resamples,
            "read": self.notes(),
            "absent": dict(self.absent),
            "summary": {name: self.estimates[name].content() for name in names if name in self.estimates},
            "references": {
                name: {metric: each.content() for metric, each in reference.items()}
                for name, reference in self.references.items()
            },
            "levels": self.levels(),
            "confusions": as_records(self.mistakes.confusions()),
            "branches": as_records(self.mistakes.worst_branches()),
            "frequencies": self.mistakes.by_frequency(),
            "rules": self.rules(),
            "recommended": [
                {
                    "goal": each.goal,
                    "rule": each.choice.rule.name,
                    "at": each.choice.accuracy,
                    "parameters": dict(self.first.answers[0].for_use.parameters[each.choice.label]),
                    "fitted": dict(each.fitted),
                    **{name: value.content() for name, value in self._of_rule(each.choice).items()},
                }
                for each in self.recommended
            ],
            "sets": self.sets,
            "against": change_records(self.changes),
            "four_fields": None if self.four_fields is None else asdict(self.four_fields),
            "moved": [asdict(each) for each in self.moved],
        }

    def notes(self) -> list[str]:
        """Return what was read, as what, and what could not be computed, in sentences."""
        lines = list[str]()
        for side in (self.first, self.second):
            for images in () if side is None else side.seeds:
                read = images.predictions
                kind = f"scores are {images.kind}, columns {read.columns}" if images.kind else "best classes alone"
                lines.append(f"{images.where}: {len(images.targets):,} images; {kind}.")
                lines += read.notes
                if images.num_above:
                    lines.append(f"{images.num_above:,} images with a target above the classes are left out.")
        return list(dict.fromkeys([*lines, *(f"Absent: {reason}" for reason in self.absent.values())]))

    def frame(self, part: str) -> "pd.DataFrame":
        """Return a part of `REPORT_PARTS` as a table for pandas."""
        import pandas as pd

        if part not in REPORT_PARTS:
            raise unknown_name("part", part, REPORT_PARTS)
        if part == "classes":
            return pd.DataFrame(self.mistakes.classes())
        records = self.content()[part]
        if part == "summary":
            records = [{"metric": name, **value} for name, value in records.items()]
        return pd.DataFrame(records)

    def figure(self, part: str) -> Any:
        """Return the picture of a part, which a notebook shows: "mistakes", "rules", or "against"."""
        from hierbench.studies.report.drawings import figure_of

        return figure_of(self, part)

    def text(self) -> str:
        """Return the page, HTML."""
        from hierbench.studies.report.page import page_text

        return page_text(self)

    def json(self) -> str:
        """Return `content` as JSON text."""
        return json.dumps(self.content(), indent=1, allow_nan=False, default=float) + "\n"

    def write(self, path: str | Path) -> None:
        """Write the page, or with the ending .json its numbers."""
        from hierbench.utils.files import write_text

        target = Path(path)
        write_text(target, self.json() if target.suffix.lower() == ".json" else self.text())

    def __str__(self) -> str:
        from hierbench.studies.report.sentences import short

        return "\n".join(short(self)) + "\n"

    def __repr__(self) -> str:
        """Return what it is on, and the first number."""
        return f"<ModelReport {self.first.name} on {self.subject}: top1 {self.estimates['top1'].value:.4g}>"


def make_report(
    tree: Hierarchy,
    subject: str,
    names: Sequence[str],
    sides: Sequence[Sequence[ScoredImages]],
    validations: Sequence[Sequence[ScoredImages]],
    settings: ReportSettings,
    train_counts: IntArray | None = None,
) -> ModelReport:
    """Compute the report on a model, and another one to compare it with.

    Args:
        tree: over the K classes.
        subject: its name.
        names: of one or two models.
        sides: the files of each model, a seed each, of the same images.
        validations: for each model a file per seed, or none.
        settings: rules and draws.
        train_counts: [K] training images of each class.

    Raises:
        UserError: files of other images, or validation files for some seeds alone.
    """
    ordered = same_images([images for side in sides for images in side])
    split = [ordered[: len(sides[0])], ordered[len(sides[0]) :]]
    choices = report_choices(settings.rules)
    absent = dict[str, str]()
    made = list[Side]()
    for name, seeds, validation in zip(names, split, validations, strict=False):
        if validation and len(validation) != len(seeds):
            raise UserError(f"{name} has {len(seeds)} files and {len(validation)} of validation: give one for each")
        why = _why_no_rules(seeds, validation)
        answers: list[ImageAnswers] = []
        if why:
            absent["rules"] = f"rules, temperature and sets: {why}."
        else:
            fitted_on: list[ScoredImages | None] = [*validation] or [None for _ in seeds]
            answers = [answer_images(*pair, choices, settings.seed) for pair in zip(seeds, fitted_on, strict=True)]
        made.append(Side(name, seeds, answers, _quantities(tree, seeds, answers)))
    if min(images.ranked.shape[1] for images in ordered) < 5 <= tree.num_classes:
        absent["hierdist@5"] = "HierDist@5: a file ranks fewer than five classes."
    resampling = Resampling(made[0].seeds[0].units, settings.resamples, settings.seed)
    if settings.resamples and resampling.num_units < 2:
        absent["intervals"] = "intervals: they need two images, or two groups."
    second = made[1] if len(made) > 1 else None
    validated = bool(validations[0])
    return ModelReport(tree, subject, made[0], second, choices, resampling, train_counts, validated, absent)


def _why_no_rules(seeds: Sequence[ScoredImages], validation: Sequence[ScoredImages]) -> str:
    """Return why no rules can be fitted; "" if they can."""
    for images in (*seeds, *validation):
        if images.kind is None:
            return f"{images.where} has no scores of all classes"
    fitted = validation or seeds
    units = min(int(images.units.max()) + 1 for images in fitted)
    return f"they need {LEAST_IMAGES} images to be fitted on, or as many groups" if units < LEAST_IMAGES else ""


def _quantities(tree: Hierarchy, seeds: Sequence[ScoredImages], answers: Sequence[ImageAnswers]) -> dict[str, Quantity]:
    """Return all numbers of a model."""
    further = dict[str, Quantity]()
    for level in range(tree.num_levels if answers else 0):
        for stage, name in enumerate((f"level_{level + 1}_ece", f"level_{level + 1}_ece_temperature")):
            confidence = [each.confidence[stage, :, level] for each in answers]
            further[name] = calibration_error(name, confidence, [each.right[stage, :, level] for each in answers])
    quantities = summary([each.ranked for each in seeds], seeds[0].targets, tree) | by_level(seeds, tree, further)
    return quantities | (rule_quantities(answers) if answers else {})
