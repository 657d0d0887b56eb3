"""Which rules a table of answers has, and how their parameters are fitted on validation examples.

Shapes: N examples, K classes.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hierbench.answers.decision_rule import Chunks, Rule, checked_chunks, find_rule, known_rules
from hierbench.answers.node_metrics import are_above, example_metrics
from hierbench.answers.temperature import Calibration, calibrate
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.node_probabilities import node_tables
from hierbench.utils.errors import UserError

ACCURACIES = (0.9, 0.95)  # that fitted rules reach on validation
DEFAULT_RULES = (
    "argmax_leaf",
    "top_down",
    "crm",
    "crm:temperature=1",
    "majority",
    "plurality",
    "expected_information",
    "least_cost:cost=hf",
    "least_cost:cost=hf:root=true",
    "confidence_threshold",
    "information_threshold",
    "darts",
    "climbing",
    "jumping",
    "rank_thresholds",
    "inaturalist_rollup",
    "speciesnet_rollup",
    "antenna_rollup",
)
BISECTIONS = 30
LARGEST_ACCURACY = 0.9999  # for which the span of a parameter is asked: it may be infinite at 1


@dataclass(frozen=True)
class RuleChoice:
    """A rule with its parameters, as a row of a table of answers.

    Attributes:
        rule: the rule.
        parameters: of it, as asked for.
        accuracy: share of correct answers on validation that its fitted parameter reaches; None where that is given, or
            there is none.
        like: the label of a rule without a fitted parameter, whose share on validation it reaches instead; "" for none.
        temperature: of the scores; None: fitted.
    """

    rule: Rule
    parameters: Mapping[str, Any] = field(default_factory=dict)
    accuracy: float | None = None
    temperature: float | None = None
    like: str = ""

    @property
    def label(self) -> str:
        """Its name in files and on the command line, "climbing@0.9"."""
        values = dict(self.parameters) | ({} if self.temperature is None else {"temperature": self.temperature})
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
        named = "".join(f":{name}={text}" for name, text in texts.items())
        share = self.like if self.accuracy is None else f"{self.accuracy:g}"
        return f"{self.rule.name}{named}" + (f"@{share}" if share else "")

    @property
    def curve(self) -> str:
        """The name of the curve of a fitted rule, which is that of all accuracies."""
        return self.label.partition("@")[0]

    @property
    def title(self) -> str:
        """Its name in tables."""
        words = [f"{100 * self.accuracy:g} %"] if self.accuracy is not None else []
        words += [f"as often right as {choice.title}" for choice in parse_choices([self.like] if self.like else [])]
        words += [f"{value}" if name == "cost" else f"{name} {value}" for name, value in self.parameters.items()]
        if self.temperature is not None:
            words.append("uncalibrated" if self.temperature == 1 else f"temperature {self.temperature:g}")
        return self.rule.title + (f" ({', '.join(words)})" if words else "")


def parse_choices(rules: Sequence[str], accuracies: Sequence[float] = ACCURACIES) -> list[RuleChoice]:
    """Return the choices of texts `NAME[:PARAMETER=VALUE...][@SHARE]`; a rule whose parameter is fitted once per share.

    Args:
        rules: the texts. SHARE is one of correct answers on validation, or a rule without a fitted parameter, whose
            share is reached.
        accuracies: the shares of rules without one of their own.

    Raises:
        UserError: no such rule or parameter, a value that is none, or an accuracy that is not between 0 and 1.
    """
    wrong = [accuracy for accuracy in accuracies if not 0.0 < accuracy < 1.0]
    if wrong:
        raise UserError(f"an accuracy is between 0 and 1, got {wrong[0]:g}")
    choices = list[RuleChoice]()
    for text in rules:
        choice_text, _, target = text.strip().partition("@")
        name, *parts = choice_text.split(":")
        values = dict(_parse_value(text, part) for part in parts)
        temperature = values.pop("temperature", None)
        if temperature is not None and not (isinstance(temperature, int | float) and temperature > 0):
            raise UserError(f"--rules {text}: a temperature is a number above 0")
        rule = find_rule(name)
        if rule.fitted and rule.fitted not in values:
            rule.checked({**values, rule.fitted: 0.0})
            if target:
                choices.append(_with_share(RuleChoice(rule, values, None, temperature), target))
            else:
                choices += [RuleChoice(rule, values, accuracy, temperature) for accuracy in accuracies]
        elif target:
            raise UserError(f"--rules {text}: {name} has no parameter to fit, so it takes no @{target}")
        else:
            choices.append(RuleChoice(rule, rule.checked(values), None, temperature))
    return list({choice.label: choice for choice in choices}.values())


def _with_share(choice: RuleChoice, target: str) -> RuleChoice:
    """Return a choice that is fitted to the share of correct answers that a text gives, or the rule it names has."""
    try:
        share = float(target)
    except ValueError:
        liked = parse_choices([target])
        if len(liked) > 1 or liked[0].temperature is not None:
            raise UserError(f"--rules {choice.label}@{target}: {target} is no rule with given parameters") from None
        return replace(choice, like=liked[0].label)
    if not 0.0 < share < 1.0:
        raise UserError(f"an accuracy is between 0 and 1, got {share:g}")
    return replace(choice, accuracy=share)


def split_rules(text: str) -> list[str]:
    """Return the rules of a text with commas between them; those in brackets are of lists."""
    return re.split(r",(?![^\[]*\])", text)


def choices_of(labels: Sequence[str]) -> list[RuleChoice]:
    """Return the choices of labels, but for those of rules that the project does not ship."""
    shipped = [label for label in labels if re.split("[:@]", label)[0] in known_rules()]
    return [choice for label in shipped for choice in parse_choices([label]) if choice.label == label]


def _parse_value(text: str, part: str) -> tuple[str, Any]:
    name, equals, value = part.partition("=")
    if not equals:
        raise UserError(f"--rules {text}: a parameter is NAME=VALUE, as in climbing:threshold=0.8")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


@dataclass(frozen=True, eq=False)
class FittedChoices:
    """What validation examples say of the temperature and of the parameters of rules.

    Attributes:
        calibration: the temperature, fitted on the first half of `order`.
        order: [N] the examples as they were drawn; the second half is new to the temperature.
        parameters: {label of a choice: its parameters}, fitted on all examples.
        metrics: {label: {metric of nodes: its mean over these examples}}.
    """

    calibration: Calibration
    order: Tensor
    parameters: Mapping[str, Mapping[str, Any]]
    metrics: Mapping[str, Mapping[str, float]]

    @property
    def second_half(self) -> Tensor:
        """The examples that the temperature has not seen: quantiles of sets are theirs."""
        return self.order[len(self.order) // 2 :]


def fit_choices(
    scores: Tensor, targets: Tensor, hierarchy: Hierarchy, choices: Sequence[RuleChoice], seed: int
) -> FittedChoices:
    """Fit the temperature on one half of validation examples, and the parameters of choices on all of them.

    Args:
        scores: [N, K], whose softmax are probabilities.
        targets: [N] class indices.
        hierarchy: over the K classes.
        choices: of rules.
        seed: of the halves.
    """
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(scores)))
    first_half = order[: len(order) // 2]
    calibration = calibrate(scores[first_half], targets[first_half])
    nodes = node_tables(hierarchy, targets.device).nodes.num_inner + targets
    parameters = dict[str, dict[str, Any]]()
    metrics = dict[str, dict[str, float]]()
    for temperature in dict.fromkeys(choice.temperature for choice in choices):
        probabilities = (scores / (calibration.temperature if temperature is None else temperature)).softmax(dim=1)
        chunks = list(checked_chunks(probabilities, hierarchy))
        for choice in (choice for choice in choices if choice.temperature == temperature):
            parameters[choice.label] = fit_choice(choice, chunks, nodes, hierarchy)
            answers = torch.cat([choice.rule(chunk, **parameters[choice.label]) for _, chunk in chunks])
            values = example_metrics(answers, nodes, hierarchy)
            metrics[choice.label] = {name: float(each.mean()) for name, each in values.items()}
    return FittedChoices(calibration, order, parameters, metrics)


def fit_choice(choice: RuleChoice, chunks: Chunks, targets: Tensor, hierarchy: Hierarchy) -> dict[str, Any]:
    """Return the parameters of a choice, the fitted one with its value.

    The value is the most specific one, found by bisection of the rule's span, with which the share of correct answers
    among the examples reaches the accuracy.

    Args:
        choice: of a rule.
        chunks: of the probabilities [N, K] of validation examples.
        targets: [N] nodes.
        hierarchy: over the K classes.
    """
    parameters = dict(choice.parameters)
    accuracy = choice.accuracy
    for liked in parse_choices([choice.like] if choice.like else []):
        accuracy, _ = shares(liked.rule, liked.parameters, chunks, targets, hierarchy)
    if accuracy is None:
        return parameters
    if choice.rule.fit is not None:
        return {**parameters, choice.rule.fitted: choice.rule.fit(chunks, targets, hierarchy, accuracy)}
    specific, cautious = choice.rule.span(hierarchy, min(accuracy, LARGEST_ACCURACY))
    value = specific
    for step in range(BISECTIONS + 1):
        parameters[choice.rule.fitted] = value
        correct, _ = shares(choice.rule, parameters, chunks, targets, hierarchy)
        if correct < accuracy:
            specific = value
        elif step == 0:
            return parameters
        else:
            cautious = value
        value = (specific + cautious) / 2.0
    return {**parameters, choice.rule.fitted: cautious}


def shares(
    rule: Rule, parameters: Mapping[str, Any], chunks: Chunks, targets: Tensor, hierarchy: Hierarchy
) -> tuple[float, float]:
    """Return the share of examples whose answer is the target [N] or above it, and the mean coverage of the answers."""
    correct = 0.0
    coverage = 0.0
    tables = node_tables(hierarchy, targets.device)
    for rows, chunk in chunks:
        nodes = rule(chunk, **parameters)
        correct += float(are_above(nodes, targets[rows], hierarchy).sum())
        information = tables.information[nodes]
        most = tables.information[-1]  # of a class
        coverage += float((information / most if hierarchy.num_classes > 1 else torch.ones_like(information)).sum())
    return correct / len(targets), coverage / len(targets)


def rule_curve(
    choice: RuleChoice, chunks: Chunks, targets: Tensor, hierarchy: Hierarchy, steps: int = 40
) -> list[tuple[float, float]]:
    """Return (coverage, share of correct answers) as the rule's parameter goes through its span, from the root on.

    The span is halved again and again where the coverage differs most. The last point is the best class, which every
    rule could answer.
    """

    def point(value: float) -> tuple[float, float, float]:
        parameters = {**choice.parameters, choice.rule.fitted: value}
        correct, coverage = shares(choice.rule, parameters, chunks, targets, hierarchy)
        return value, coverage, correct

    points = [point(value) for value in reversed(choice.rule.span(hierarchy, 0.99))]
    for _ in range(steps):
        gaps = [abs(second[1] - first[1]) for first, second in pairwise(points)]
        place = gaps.index(max(gaps))
        points.insert(place + 1, point((points[place][0] + points[place + 1][0]) / 2.0))
    correct, coverage = shares(find_rule("argmax_leaf"), {}, chunks, targets, hierarchy)
    return [(0.0, 1.0), *((coverage, correct) for _, coverage, correct in points), (coverage, correct)]


def area_under(points: Sequence[tuple[float, float]]) -> float:
    """Return the area under the share of correct answers over coverage, of a `rule_curve`.

    At each coverage counts the largest share that is reached there or at a larger coverage, as in Valmadre's curve.
    """
    falling = sorted(points, reverse=True)
    area = 0.0
    largest = 0.0
    for (coverage, correct), (next_coverage, _) in pairwise([*falling, (0.0, 0.0)]):
        largest = max(largest, correct)
        area += (coverage - next_coverage) * largest
    return area
