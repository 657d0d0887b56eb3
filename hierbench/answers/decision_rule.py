"""What a decision rule is, and how it is found: by name in `hierbench/answers/rules/`, or by the path of a user's file.

Shapes: N examples, K classes, B examples of a chunk.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hierbench.hierarchy.class_names import scores_by_class
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.hierarchy.levels import nodes_on
from hierbench.metrics.calibration import as_probabilities, probability_rows
from hierbench.metrics.node_probabilities import NodeProbabilities
from hierbench.metrics.ranked_classes import as_tensor, rows_at_a_time
from hierbench.utils.errors import UserError, error_line, foreign_errors, line_in, unknown_name
from hierbench.utils.text import is_path
from hierbench.utils.user_code import run_file

CHUNKS_AT_A_TIME = 8  # times the rows of `chunks`: a rule that is fitted is called hundreds of times for each
Chunks = Sequence[tuple[slice, NodeProbabilities]]  # of `checked_chunks`: what rules share is computed once
Span = Callable[[Hierarchy, float], tuple[float, float]]  # of a tree and an accuracy
Fit = Callable[[Chunks, Tensor, Hierarchy, float], Any]  # of probabilities, target nodes [N], a tree and an accuracy


def unit_span(_: Hierarchy, __: float) -> tuple[float, float]:
    """Return the span of a probability: at 0 a rule answers a class, at 1 the root if nothing is certain."""
    return 0.0, 1.0


@dataclass(frozen=True)
class Rule:
    """A decision rule: from the probabilities of the classes to one node per example.

    Attributes:
        function: (NodeProbabilities, **parameters) -> [B] int64 nodes; its name is the rule's.
        title: in tables.
        source: citation.
        abstains: whether it can answer a node that is no class.
        fitted: the parameter that validation sets, "" if there is none.
        span: (tree, accuracy) -> the values of that parameter between which it is searched, the one whose answers are
            most specific first.
        fit: returns the value of that parameter that reaches an accuracy; None: one number, searched in the span.
    """

    function: Callable[..., Tensor]
    title: str
    source: str
    abstains: bool = True
    fitted: str = ""
    span: Span = field(default=unit_span, repr=False)
    fit: Fit | None = field(default=None, repr=False)

    def __call__(self, chunk: NodeProbabilities, *arguments: Any, **parameters: Any) -> Tensor:
        """Return the nodes [B] of a chunk; a UserError names the rule where it fails, as with a wrong parameter."""
        with foreign_errors(lambda error: UserError(f"rule {self.name}: {error_line(error)}"), passing=UserError):
            return self.function(chunk, *arguments, **parameters)

    @property
    def name(self) -> str:
        """As it is given to `answer`."""
        return self.function.__name__

    @property
    def parameters(self) -> dict[str, Any]:
        """Its parameters and their defaults, `inspect.Parameter.empty` for one that must be given."""
        _, *parameters = inspect.signature(self.function).parameters.values()
        return {parameter.name: parameter.default for parameter in parameters}

    def checked(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters; raise a UserError for one that the rule does not have, or one that it lacks."""
        for name in parameters:
            if name not in self.parameters:
                raise unknown_name(f"parameter of {self.name}", name, list(self.parameters))
        for name, default in self.parameters.items():
            if default is inspect.Parameter.empty and name not in parameters:
                raise UserError(f"rule {self.name} needs {name}=VALUE")
        return dict(parameters)


def rule(
    title: str,
    source: str,
    *,
    abstains: bool = True,
    fitted: str = "",
    span: Span = unit_span,
    fit: Fit | None = None,
) -> Callable[[Callable[..., Tensor]], Rule]:
    """Make a `Rule` of the function below; the arguments are its attributes."""
    return lambda function: Rule(function, title, source, abstains, fitted, span, fit)


def answer(rule: str | Rule, probabilities: Tensor | ArrayLike, hierarchy: Hierarchy, **parameters: Any) -> Any:
    """Return the node that a rule answers for each example.

    Args:
        rule: its name, see `known_rules`; the path of a file that defines one; or the rule itself.
        probabilities: [N, K], on any device; the sum of a row is 1 within 1%.
        hierarchy: over the K classes.
        parameters: of the rule.

    Returns:
        [N] int64 nodes as `hierbench.hierarchy.Nodes` numbers them (the root is 0, class y is num_inner + y), a tensor
        on the device of the probabilities, or an array where these are no tensor.

    Raises:
        UserError: a ValueError: no such rule, a parameter that it does not have, or no probabilities.
    """
    chosen = find_rule(rule) if isinstance(rule, str) else rule
    table = as_table(probabilities, hierarchy)
    nodes = answer_nodes(chosen, table, hierarchy, chosen.checked(parameters))
    return nodes if isinstance(probabilities, Tensor) else nodes.numpy()


def answer_nodes(rule: Rule, probabilities: Tensor, hierarchy: Hierarchy, parameters: Mapping[str, Any]) -> Tensor:
    """Return what `answer` returns, of checked arguments."""
    nodes = torch.empty(len(probabilities), dtype=torch.int64, device=probabilities.device)
    for rows, chunk in checked_chunks(probabilities, hierarchy):
        nodes[rows] = rule(chunk, **parameters)
    return nodes


def as_table(probabilities: Tensor | ArrayLike, hierarchy: Hierarchy) -> Tensor:
    """Return probabilities as a tensor; a ValueError unless they are real numbers [N, K]."""
    values = as_tensor(
        scores_by_class(probabilities, hierarchy, "probabilities"), "probabilities must be real numbers [N, K]"
    )
    if values.ndim != 2 or values.shape[1] != hierarchy.num_classes or not values.is_floating_point():
        raise ValueError(f"probabilities must be real numbers [N, {hierarchy.num_classes}], got {tuple(values.shape)}")
    return values


def checked_chunks(probabilities: Tensor, hierarchy: Hierarchy) -> Iterator[tuple[slice, NodeProbabilities]]:
    """Yield what `chunks` yields, with sums of 1; a ValueError for a row whose sum is not 1 within 1%."""
    rows = CHUNKS_AT_A_TIME * rows_at_a_time(nodes_on(hierarchy, probabilities.device).num_nodes)
    for start in range(0, len(probabilities), rows):
        values = probabilities[start : start + rows]
        wrong = (~probability_rows(values)).nonzero()[:, 0]
        if len(wrong):
            row = start + int(wrong[0])
            raise ValueError(f"row {row} of the probabilities has no sum of 1, or a negative one: are they logits?")
        yield slice(start, start + rows), NodeProbabilities(as_probabilities(values, "probabilities"), hierarchy)


@cache
def _shipped() -> dict[str, Rule]:
    package = importlib.import_module("hierbench.answers.rules")
    names = [f"{package.__name__}.{info.name}" for info in pkgutil.iter_modules(package.__path__)]
    modules = map(importlib.import_module, names)
    return {rule.name: rule for module in modules for rule in _rules_in(module)}


def _rules_in(module: ModuleType) -> list[Rule]:
    return [value for value in vars(module).values() if isinstance(value, Rule)]


def known_rules() -> list[str]:
    """Return the names of the rules that the project ships."""
    return sorted(_shipped())


def find_rule(reference: str) -> Rule:
    """Return the rule of a name, or the one that the file of a path defines; a UserError if there is none."""
    if is_path(reference):
        return _read_rule(Path(reference))
    if reference not in _shipped():
        raise unknown_name("rule", reference, known_rules())
    return _shipped()[reference]


def _read_rule(path: Path) -> Rule:
    def problem(error: BaseException) -> UserError:
        return UserError(f"rule {path} cannot be imported: {error_line(error)}{line_in(error, path.name)}")

    rules = _rules_in(run_file(path, "rule", problem))
    if len(rules) != 1:
        raise UserError(f"rule {path}: the file must define exactly one Rule, it defines {len(rules)}")
    check_rule(rules[0])
    return rules[0]


def check_rule(rule: Rule) -> None:
    """Raise a UserError unless a rule keeps its contract on a small ragged tree with an only child.

    Its answers are nodes of the tree, the same in chunks of any size, and classes if it says that it never abstains.
    """
    tree = Hierarchy.from_paths({path[-1]: path for path in (("A", "B", "a"), ("A", "B", "b"), ("A", "c"), ("d", "e"))})
    drawn = torch.from_numpy(np.random.default_rng(0).dirichlet(np.ones(4), size=24))
    parameters = {rule.fitted: sum(rule.span(tree, 0.9)) / 2} if rule.fitted else {}

    def problem(error: BaseException) -> UserError:
        return UserError(f"rule {rule.name} fails: {error_line(error)}")

    with foreign_errors(problem, passing=UserError):
        nodes = answer_nodes(rule, drawn, tree, rule.checked(parameters))
        single = torch.cat([answer_nodes(rule, row[None], tree, parameters) for row in drawn])
    num_inner = 4
    if bool(((nodes < 0) | (nodes >= num_inner + 4)).any()):
        raise UserError(f"rule {rule.name} answers numbers that are no nodes of the tree")
    if not torch.equal(nodes, single):
        raise UserError(f"rule {rule.name} answers otherwise for an example by itself than among others")
    if not rule.abstains and bool((nodes < num_inner).any()):
        raise UserError(f"rule {rule.name} says that it never abstains, and answers a node that is no class")
