"""The report on a model's predictions as a value: numbers by part, sentences, JSON; see `make_report`.

Shapes: N images, K classes, L levels.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hierbench.hierarchy.label_tree import Hierarchy, IntArray
from hierbench.studies.report.accuracy import by_level, calibration_error, summary
from hierbench.studies.report.drawings import ReportDrawing, figure_of
from hierbench.studies.report.page import page_text
from hierbench.studies.report.report_numbers import ReportNumbers, Side
from hierbench.studies.report.resampling import Quantity, Resampling
from hierbench.studies.report.rule_fitting import (
    LEAST_IMAGES,
    REPORT_RULES,
    ImageAnswers,
    answer_images,
    report_choices,
)
from hierbench.studies.report.scored_images import ScoredImages, same_images
from hierbench.studies.report.sentences import short
from hierbench.studies.report.unsure import rule_quantities
from hierbench.studies.scoring.scores import check_resamples
from hierbench.utils.errors import UserError, unknown_name
from hierbench.utils.files import write_text

if TYPE_CHECKING:
    import pandas as pd

REPORT_PARTS = ("summary", "levels", "confusions", "branches", "classes", "rules", "recommended", "sets", "against")


@dataclass(frozen=True)
class ReportSettings:
    """What a report computes.

    Attributes:
        rules: decision rules, see `hierbench.answers.choices.parse_choices`; none leaves the temperature alone.
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


@dataclass(frozen=True, eq=False, repr=False)
class ModelReport(ReportNumbers):
    """What a model gets wrong, what to answer when it is unsure, and whether another one is better: as people see it.

    Its numbers are those of `ReportNumbers`.
    """

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

    def figure(self, part: str) -> ReportDrawing:
        """Return the picture of a part, which a notebook shows: "mistakes", "rules", or "against"."""
        return figure_of(self, part)

    def text(self) -> str:
        """Return the page, HTML."""
        return page_text(self)

    def json(self) -> str:
        """Return `content` as JSON text."""
        return json.dumps(self.content(), indent=1, allow_nan=False, default=float) + "\n"

    def text_for(self, path: Path) -> str:
        """Return the page, or for a path with the ending .json its numbers."""
        return self.json() if path.suffix.lower() == ".json" else self.text()

    def write(self, path: str | Path) -> None:
        """Write `text_for` the path."""
        write_text(Path(path), self.text_for(Path(path)))

    def __str__(self) -> str:
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
    absent = dict[str, str]() if choices else {"rules": "no rules are asked for."}
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
