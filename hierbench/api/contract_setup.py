"""Shared by the checks of `hierbench.api.contract`: a small ragged tree, with methods and numbers on it.

Shapes: B batch, D features, K classes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor

from hierbench.api.method import AnyMethod, Method, PostHoc, base_names
from hierbench.hierarchy.label_tree import Hierarchy

NUM_EXAMPLES = 8
NUM_FEATURES = 20  # of type I: differs from all sizes below, so that sizes tell dimensions apart
PATHS = {
    "ash": ("plant", "tree", "ash"),
    "oak": ("plant", "tree", "oak"),
    "fern": ("plant", "fern"),
    "cat": ("animal", "mammal", "cat"),
    "dog": ("animal", "mammal", "dog"),
    "owl": ("animal", "bird", "owl"),
    "hen": ("animal", "bird", "hen"),
}
CONTRACT_TREE = Hierarchy.from_paths(PATHS)
NUM_INNER = 5  # inner nodes of CONTRACT_TREE below the root
RELABELLING = [3, 6, 0, 5, 1, 4, 2]  # new class i is old class RELABELLING[i]
RELABELLED = Hierarchy.from_paths(
    {CONTRACT_TREE.classes[old]: PATHS[CONTRACT_TREE.classes[old]] for old in RELABELLING}
)

PROGRESS = (0.0, 0.5, 1.0)  # a term may be off at the start or at the end of the training


@dataclass(frozen=True)
class Check:
    """A check of trained or re-ranking methods; the check of a hook runs only on classes that define its attribute."""

    name: str
    kind: AnyMethod
    run: Callable[[Any], None]
    hook: str = ""

    def concerns(self, cls: AnyMethod) -> bool:
        """Whether a method's class has the optional part that is checked."""
        if not issubclass(cls, self.kind):
            return False
        if self.hook == "base":
            return issubclass(cls, PostHoc) and len(base_names(cls)) > 1
        needed = self.hook == "fit" and getattr(cls, "needs_validation", False)
        return not self.hook or needed or getattr(cls, self.hook) is not getattr(self.kind, self.hook)


class ContractError(AssertionError):
    """A method breaks the contract; the message says how."""


def require(condition: bool | Tensor, message: str) -> None:
    """Raise a ContractError unless a condition holds."""
    if not bool(condition):
        raise ContractError(message)


def feature_width(cls: type[Method]) -> int:
    """Return D of the features that a method is checked with."""
    return NUM_FEATURES if "type-I" in cls.types else len(PATHS)


def build_method(
    cls: type[Method], tree: Hierarchy = CONTRACT_TREE, params: BaseModel | None = None, seed: int = 0
) -> Method:
    """Return a method with weights that follow from a seed."""
    torch.manual_seed(seed)
    return cls(tree, feature_width(cls), params or cls.Params())


def make_batch(cls: type[Method]) -> tuple[Tensor, Tensor]:
    """Return features [B, D] and targets [B], the same at every call."""
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(NUM_EXAMPLES, feature_width(cls), generator=generator)
    return features, torch.arange(NUM_EXAMPLES) % len(PATHS)


def compute_objective(method: Method, features: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of the loss terms after checking that they are finite scalars."""
    torch.manual_seed(2)
    terms = method.loss(method(features), targets)
    require(isinstance(terms, dict) and bool(terms), "loss must return a dict of named terms")
    for name, term in terms.items():
        require(isinstance(term, Tensor) and term.ndim == 0, f"loss term {name!r} must be a scalar tensor")
        require(term.isfinite(), f"loss term {name!r} is {term.item()} on ordinary features")
    return torch.stack(list(terms.values())).sum()


def compute_scores(method: Method, features: Tensor) -> Tensor:
    """Return the scores [B, K] as after training."""
    method.eval()
    with torch.no_grad():
        return method.scores(method(features))


def changed_params(cls: AnyMethod) -> Iterator[tuple[str, BaseModel]]:
    """Yield each hyperparameter's name, and the params in which it alone differs from its default."""
    for name, field in cls.Params.model_fields.items():
        extra = field.json_schema_extra
        grid = extra.get("grid") if isinstance(extra, dict) else None
        options: list[Any] = [*(grid if isinstance(grid, list) else []), *(field.examples or [])]
        if get_origin(field.annotation) is Literal:
            options += get_args(field.annotation)
        elif field.annotation is bool:
            options += [False, True]
        else:
            bounds = [getattr(item, key) for item in field.metadata for key in ("ge", "le") if hasattr(item, key)]
            numbers = [field.default + 1, field.default / 2] if isinstance(field.default, int | float) else []
            options += [*numbers, *bounds]
        for option in options:
            try:
                changed = cls.Params.model_validate({name: option})
            except ValidationError:
                continue
            if getattr(changed, name) != field.default:
                yield name, changed
                break
        else:
            raise ContractError(f"hyperparameter {name} has no value besides its default: give it a grid or examples")
