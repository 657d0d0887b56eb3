"""What a method is: the head of a classifier on the penultimate features, or a re-ranking of predictions.

Shapes: B batch, N examples, D features, K classes.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field
from torch import Tensor, nn

from hierbench.config.sections import FEATURE_TYPES, FeatureType
from hierbench.config.validation import Closed
from hierbench.hierarchy.tree import Hierarchy
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
    return Field(default=default, ge=low, le=high, examples=list(examples), json_schema_extra={"grid": list(grid)})


class Parameters(Closed):
    """A method's hyperparameters: typed and closed, so an unknown name is an error."""


class Method(nn.Module):
    """Base class of all trained methods; a subclass defines the names below and the three functions.

    Attributes:
        name: as on the command line; equal to the file's name without `.py`.
        title: as in the leaderboard.
        source: citation with equation numbers.
        version: raise it when results change.
        types: the feature extractors that it supports.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    version: ClassVar[str] = "1"
    types: ClassVar[tuple[FeatureType, ...]] = FEATURE_TYPES

    class Params(Parameters):
        """No hyperparameters unless the method declares some."""

    def __init__(self, hierarchy: Hierarchy, num_features: int, params: Any = None) -> None:
        """Keep the hierarchy and the hyperparameters; `params` is a `Params` or None for the defaults."""
        super().__init__()
        self.hierarchy = hierarchy
        self.num_features = num_features
        self.params = params if params is not None else self.Params()

    def forward(self, features: Tensor) -> Any:
        """Map features [B, D] to outputs: whatever `loss` and `scores` need."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def loss(self, outputs: Any, targets: Tensor) -> dict[str, Tensor]:
        """Return the named loss terms, already weighted and averaged over the batch; the objective is their sum.

        The names and their order are the same at every call, see `loss_names`.

        Args:
            outputs: what `forward` returned.
            targets: [B] class indices.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no loss")

    def scores(self, outputs: Any) -> Tensor:
        """Return scores [B, K], larger = ranked earlier; their softmax is what post-hoc methods take."""
        raise NotImplementedError(f"{type(self).__name__} defines no scores")


def loss_names(terms: Any, before: Sequence[str] = ()) -> list[str]:
    """Return the names of the loss terms of a batch; they become columns of the history.

    Args:
        terms: what `Method.loss` returned.
        before: the names at the previous call, () at the first.

    Raises:
        UserError: the terms are not a dict; or a name is not a string, has changed, or is "loss", which is their sum.
    """
    if not isinstance(terms, dict) or not terms:
        raise UserError("loss must return a dict of named terms")
    names = list(terms)
    for name in names:
        if not isinstance(name, str) or not name.strip():
            raise UserError(f"loss names must be non-empty strings, got {name!r}")
        if name == "loss":
            raise UserError("a loss term cannot be called 'loss', the name of their sum in the history")
    if before and names != list(before):
        then, now = ", ".join(before), ", ".join(names)
        raise UserError(f"loss names must be the same at every call, in the same order: first {then}, then {now}")
    return names


class PostHoc:
    """Base class of methods that re-rank a trained method's predictions without training.

    Attributes:
        base: the name of the method whose predictions are re-ranked.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    source: ClassVar[str]
    version: ClassVar[str] = "1"
    types: ClassVar[tuple[FeatureType, ...]] = FEATURE_TYPES
    base: ClassVar[str] = "ce"

    class Params(Parameters):
        """No hyperparameters unless the method declares some."""

    def __init__(self, hierarchy: Hierarchy, params: Any = None) -> None:
        """Keep the hierarchy and the hyperparameters; `params` is a `Params` or None for the defaults."""
        self.hierarchy = hierarchy
        self.params = params if params is not None else self.Params()

    def rescore(self, probabilities: Tensor) -> Tensor:
        """Map the base method's probabilities [N, K] to scores [N, K], larger = ranked earlier.

        Called with a chunk of the examples at a time, on any device; own tensors must be moved to that device.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no rescore")
