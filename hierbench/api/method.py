"""The two kinds of method: the head of a classifier on the penultimate features, and a re-ranking of predictions.

Shapes: B batch, N examples, D features, K classes, L levels, K_l nodes of a level.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from hierbench.config.sections import PAPER_TYPES, FeatureType
from hierbench.config.validation import Closed, validated
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.losses.node_targets import TargetsAre
from hierbench.utils.errors import UserError


def hyperparameter(
    default: Any,
    *,
    low: float | None = None,
    high: float | None = None,
    grid: Sequence[float] = (),
    examples: Sequence[Any] = (),
) -> Any:
    """Declare a hyperparameter once.

    Args:
        default: its value unless a recipe says otherwise.
        low: smallest value.
        high: largest value.
        grid: values that tuning searches; without a grid it is not tuned.
        examples: other values for `hierbench methods check`, if it is not a number, bool or Literal.
    """
    limits = [-math.inf if low is None else low, math.inf if high is None else high]
    extra: dict[str, Any] = {"grid": list(grid), "limits": limits}
    return Field(default=default, ge=low, le=high, examples=list(examples), json_schema_extra=extra)


class Parameters(Closed):
    """A method's hyperparameters: typed and closed, so an unknown name is an error."""


@dataclass(frozen=True)
class Configured:
    """A method and values of its hyperparameters, without a tree; `hierbench.run` takes it. Made by `with_params`."""

    cls: "type[Method] | type[PostHoc]"
    values: Mapping[str, Any]


class Declared:
    """The declarations of every method, see `Method` and `PostHoc`."""

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    version: ClassVar[str] = "1"
    types: ClassVar[tuple[FeatureType, ...]] = PAPER_TYPES

    class Params(Parameters):
        """No hyperparameters unless the method declares some."""

    @classmethod
    def with_params(cls, **values: Any) -> Configured:
        """Return the method with these hyperparameters, for `hierbench.run`; a UserError if one is invalid."""
        validated(cls.Params, values, f"hyperparameters of {cls.__name__}")
        return Configured(cls, values)  # type: ignore[arg-type]  # only Method and PostHoc are Declared


class Method(Declared, nn.Module):
    """Base class of all trained methods; a subclass defines the names below and the three functions.

    Attributes:
        name: as on the command line; equal to the file's name without `.py`.
        title: as in the leaderboard.
        source: citation with equation numbers.
        version: raise it when results change.
        types: the feature extractors that it supports.
        progress: the fraction of the training that is done, 0 <= progress < 1; the trainer sets it before every step
            to (epoch + step / steps) / epochs, counted from 0. `loss` may read it, `scores` may not depend on it.
        accepts_nodes: whether `loss` takes targets that are nodes above the classes.
        targets_are: what the targets of `loss` are: "classes"; or, where training labels are above the classes,
            "nodes", numbered as in `Nodes`, as the functions of `hierbench.losses` take them. The trainer sets it.
    """

    progress: float = 0.0
    accepts_nodes: ClassVar[bool] = False
    targets_are: TargetsAre = "classes"

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        """Keep the hierarchy and the hyperparameters; `params` is a `Params` or None for the defaults."""
        super().__init__()
        self.hierarchy = hierarchy
        self.num_features = num_features
        self.params = params if params is not None else self.Params()

    def forward(self, features: Tensor) -> Any:
        """Map features [B, D] to outputs, of any type that `loss` and `scores` take."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def loss(self, outputs: Any, targets: Tensor) -> dict[str, Tensor]:
        """Return the named loss terms, already weighted and averaged over the batch; the objective is their sum.

        The names and their order are the same at every call, see `loss_names`.

        Args:
            outputs: returned by `forward`.
            targets: [B] class indices, or nodes, see `targets_are`.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no loss")

    def scores(self, outputs: Any) -> Tensor:
        """Return scores [B, K], larger = ranked earlier; post-hoc methods take their softmax."""
        raise NotImplementedError(f"{type(self).__name__} defines no scores")

    @classmethod
    def has_logits(cls, params: Any) -> bool:
        """Whether the softmax of the scores is meant as probabilities, with these hyperparameters; optional.

        Not if they are cosines or lengths: decision rules then take them only after a temperature has been fitted.
        """
        return True

    def parameter_groups(self) -> dict[str, list[nn.Parameter]]:
        """Return the parameters with learning rates of their own, by the name of the rate; optional.

        A recipe sets the rate as `[methods.X.lr] NAME = 0.01`; without one it is the classifier's, as of all other
        parameters of the method.
        """
        return {}

    def merit(self, metrics: Mapping[str, float]) -> float:
        """Return how good an epoch is by its validation metrics, named as in `evaluate`; the best is tested; optional.

        Top-1 accuracy, unless the method ranks classes too coarsely for it.
        """
        return metrics["top1"]

    def level_scores(self, outputs: Any) -> list[Tensor] | None:
        """Return the level-wise predictions, if the method makes any: [B, K_l] per level, coarsest first; optional.

        Larger = ranked earlier; the nodes of a level are those of `Hierarchy.level_targets`. The node that is ranked
        first at each level is stored with the run.
        """
        return None


GROUP_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def trainable_groups(method: Method) -> dict[str, list[nn.Parameter]]:
    """Return the trainable parameters of a method that share a learning rate: the classifier's, then own groups.

    Raises:
        UserError: a group has the name of another part of the model, shares a parameter with another group, or holds
            something that is not a parameter of the method.
    """
    group_by_name: Any = method.parameter_groups()
    if not isinstance(group_by_name, dict):
        raise UserError(f"method {method.name}: parameter_groups must return a dict of lists of parameters")
    names = {id(parameter): name for name, parameter in method.named_parameters()}
    group_of: dict[int, str] = {}
    groups: dict[str, list[nn.Parameter]] = {"classifier": []}
    for group, members in group_by_name.items():
        if not isinstance(group, str) or not GROUP_NAME.fullmatch(group):
            raise UserError(f"method {method.name}: a group's name is letters, digits, _ and -, got {group!r}")
        if group in ("backbone", "transform"):
            raise UserError(f"method {method.name}: no group can be called {group}, a part of the model before it")
        groups[group] = []
        for parameter in members:
            if id(parameter) not in names:
                raise UserError(f"method {method.name}: group {group} has an element that is not its parameter")
            name = names[id(parameter)]
            other = group_of.setdefault(id(parameter), group)
            if other != group or any(parameter is member for member in groups[group]):
                where = f"{other} and {group}" if other != group else f"{group} twice"
                raise UserError(f"method {method.name}: parameter {name} is in group {where}")
            groups[group].append(parameter)
    groups["classifier"] += [parameter for parameter in method.parameters() if id(parameter) not in group_of]
    return {group: [p for p in members if p.requires_grad] for group, members in groups.items()}


def loss_names(terms: Any, before: Sequence[str] = ()) -> list[str]:
    """Return the names of the loss terms of a batch; they become columns of the history.

    Args:
        terms: returned by `Method.loss`.
        before: the names at the previous call, () at the first.

    Raises:
        UserError: the terms are not a dict, or one is no scalar; or a name is not a string, has changed, or is "loss",
            which is their sum.
    """
    if not isinstance(terms, dict) or not terms:
        raise UserError("loss must return a dict of named terms")
    names = list(terms)
    for name, term in terms.items():
        check_shape(term, (), f"loss term {name!r}")
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise UserError(f"loss names must be non-empty strings, got {name!r}")
        if name == "loss":
            raise UserError("a loss term cannot be called 'loss', the name of their sum in the history")
    if before and names != list(before):
        then = ", ".join(before)
        now = ", ".join(names)
        raise UserError(f"loss names must be the same at every call, in the same order: first {then}, then {now}")
    return names


def check_shape(value: Any, shape: tuple[int, ...], description: str) -> None:
    """Raise a UserError unless a method returned a tensor of this shape."""
    if not isinstance(value, Tensor) or value.shape != shape:
        got = f"one of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise UserError(f"{description} must be a tensor of shape {list(shape)}, got {got}")


class PostHoc(Declared):
    """Base class of methods that re-rank trained methods' predictions without training.

    Attributes:
        base: the name of the method whose predictions are re-ranked, or the names of several.
        needs_validation: whether `fit` is called before `rescore`, with the bases' probabilities on the validation
            split. These are computed from the bases' checkpoints, so a base that is itself re-ranked is refused.
    """

    base: ClassVar[str | tuple[str, ...]] = "ce"
    needs_validation: ClassVar[bool] = False

    def __init__(self, hierarchy: Hierarchy, params: Any = None) -> None:
        """Keep the hierarchy and the hyperparameters; `params` is a `Params` or None for the defaults."""
        self.hierarchy = hierarchy
        self.params = params if params is not None else self.Params()

    # Typed so that a subclass may name its bases: rescore(self, fine, coarse).
    def rescore(self, *probabilities: Any, **_: Any) -> Tensor:
        """Map the probabilities [N, K] of each base, in their order, to scores [N, K], larger = ranked earlier.

        Called with a chunk of the examples at a time, on any device; own tensors must be moved to that device.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no rescore")

    def fit(self, *probabilities: Any, **targets: Any) -> None:
        """Learn from the validation split, before the first call of `rescore`; only with `needs_validation`.

        Args:
            probabilities: [N, K] of each base, in their order, float64.
            targets: `targets` [N], class indices, by this name.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no fit")


AnyMethod = type[Method] | type[PostHoc]


def base_names(method: type[PostHoc]) -> tuple[str, ...]:
    """Return the names of the methods whose predictions a post-hoc method takes, in their order."""
    return (method.base,) if isinstance(method.base, str) else method.base
