"""The part of the contract for methods that re-rank predictions.

Shapes: B batch, N examples, K classes.
"""

from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from hierbench.api.contract_setup import (
    CONTRACT_TREE,
    NUM_EXAMPLES,
    PATHS,
    RELABELLED,
    RELABELLING,
    changed_params,
    require,
)
from hierbench.api.method import PostHoc, base_names
from hierbench.hierarchy.label_tree import Hierarchy

NUM_VAL = 24  # examples of the validation split
TEST_SEED = 1  # of the bases' probabilities
VAL_SEED = 100


def _probabilities(cls: type[PostHoc], seed: int = TEST_SEED, num: int = NUM_EXAMPLES) -> list[Tensor]:
    """Return [B, K] of each base."""
    probabilities = []
    for number in range(len(base_names(cls))):
        generator = torch.Generator().manual_seed(seed + number)
        logits = torch.randn(num, len(PATHS), generator=generator, dtype=torch.float64)
        probabilities.append((3.0 * logits).softmax(dim=1))
    return probabilities


def _fit_method(
    cls: type[PostHoc], tree: Hierarchy = CONTRACT_TREE, params: BaseModel | None = None, order: Tensor | None = None
) -> PostHoc:
    """Return a method, fitted if it needs that; `order` [K] has the old index of each class of the tree."""
    posthoc = cls(tree, params or cls.Params())
    if cls.needs_validation:
        order = torch.arange(len(PATHS)) if order is None else order
        targets = torch.arange(NUM_VAL) % len(PATHS)
        torch.manual_seed(0)
        permuted = [tensor[:, order] for tensor in _probabilities(cls, VAL_SEED, NUM_VAL)]
        posthoc.fit(*permuted, targets=order.argsort()[targets])
    return posthoc


def rescore(cls: type[PostHoc], params: BaseModel | None = None) -> Tensor:
    """Return the scores [B, K] of a method for the contract's probabilities."""
    return _fit_method(cls, params=params).rescore(*_probabilities(cls))


def check_rescore(cls: type[PostHoc]) -> None:
    """Require finite scores of the same shape, which no other example and no earlier call changes."""
    probabilities = _probabilities(cls)
    posthoc = _fit_method(cls)
    kept = [tensor.clone() for tensor in probabilities]
    scores = posthoc.rescore(*probabilities)
    require(scores.shape == probabilities[0].shape, f"rescore must keep the shape, got {tuple(scores.shape)}")
    require(scores.isfinite().all(), "rescored values must be finite")
    require(all(map(torch.equal, probabilities, kept)), "rescore must not change its arguments")
    require(torch.equal(scores, rescore(cls)), "rescore must be deterministic")
    require(torch.equal(scores, posthoc.rescore(*probabilities)), "rescore gives other scores when it is called again")
    rows = zip(*(tensor.split(1) for tensor in probabilities), strict=True)
    alone = torch.cat([_fit_method(cls).rescore(*row) for row in rows])
    require(torch.allclose(scores, alone), "an example's scores depend on the other examples")


def check_rescore_relabelling(cls: type[PostHoc]) -> None:
    """Relabel the classes: the scores follow them."""
    leaves = torch.tensor(RELABELLING)
    expected = rescore(cls)[:, leaves]
    moved = _fit_method(cls, RELABELLED, order=leaves).rescore(*(tensor[:, leaves] for tensor in _probabilities(cls)))
    require(torch.allclose(moved, expected), "relabelling the classes must permute the scores")


def check_bases(cls: type[PostHoc]) -> None:
    """Every base that is named acts, if not by default then with another hyperparameter."""
    bases = base_names(cls)
    probabilities = _probabilities(cls)
    variants = [None, *(changed for _, changed in changed_params(cls))]
    for number, base in enumerate(bases):
        other = [tensor.flip(0) if place == number else tensor for place, tensor in enumerate(probabilities)]
        acts = False
        for params in variants:
            posthoc = _fit_method(cls, params=params)
            acts |= not torch.equal(posthoc.rescore(*probabilities), posthoc.rescore(*other))
        require(acts, f"the scores do not depend on the base {base}")


def check_fit(cls: type[PostHoc]) -> None:
    """Fit to [N, K] of each base and targets [N]: neither is changed, and the same seed gives the same scores."""
    require(cls.needs_validation, "fit is never called: set needs_validation = True")
    probabilities = _probabilities(cls, VAL_SEED, NUM_VAL)
    targets = torch.arange(NUM_VAL) % len(PATHS)
    kept: Any = [*(tensor.clone() for tensor in probabilities), targets.clone()]
    posthoc = cls(CONTRACT_TREE, cls.Params())
    torch.manual_seed(0)
    posthoc.fit(*probabilities, targets=targets)
    require(all(map(torch.equal, [*probabilities, targets], kept)), "fit must not change its arguments")
    require(torch.equal(posthoc.rescore(*_probabilities(cls)), rescore(cls)), "fit must be deterministic")
