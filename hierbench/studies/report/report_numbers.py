"""All numbers of a report as a value, computed when they are first asked for.

Shapes: N images, K classes, L levels.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hierbench.answers.choices import RuleChoice
from hierbench.answers.deployed_rule import DeployedRule
from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.studies.report.accuracy import level_names, references
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
from hierbench.studies.report.rule_fitting import ImageAnswers
from hierbench.studies.report.scored_images import ScoredImages
from hierbench.studies.report.unsure import GOALS, Recommended, curves, recommend, sets_of
from hierbench.utils.errors import UserError, unknown_name

SCHEMA = 1


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


@dataclass(frozen=True, eq=False, repr=False)
class ReportNumbers:
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
        made = references(self.first.seeds, self.tree)
        joined = {f"{name} {metric}": each for name, quantities in made.items() for metric, each in quantities.items()}
        drawn = estimates(joined, self.resampling)
        return {name: {metric: drawn[f"{name} {metric}"] for metric in quantities} for name, quantities in made.items()}

    @cached_property
    def mistakes(self) -> Mistakes:
        """Where mistakes go, of all seeds."""
        seeds = self.first.seeds
        return Mistakes.of(seeds[0].targets, [each.top for each in seeds], self.tree, self.train_counts)

    @cached_property
    def recommended(self) -> list[Recommended]:
        """The rule for each of three goals; [] without rules."""
        return recommend(self.first.answers, self.choices) if self.first.answers and self.choices else []

    @cached_property
    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """{title of a rule: (coverage, share right)}; {} without rules."""
        return curves(self.first.answers[0], self.choices) if self.first.answers else {}

    @cached_property
    def sets(self) -> list[dict[str, Any]]:
        """Sets of classes at 90 %; [] without rules."""
        return sets_of(self.first.answers[0]) if self.first.answers and self.choices else []

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
        if not self.recommended:
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
        if self.second is not None and self.second.answers and self.second.answers[0].halves and self.validated:
            lines.append(f"The rules of {self.second.name} are fitted on halves of its own file.")
        return list(dict.fromkeys([*lines, *(f"Absent: {reason}" for reason in self.absent.values())]))
