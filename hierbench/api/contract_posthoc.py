"""The checks of methods that re-rank predictions, see `hierbench.api.contract`.

Shapes: B examples, K classes.
"""

from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from hierbench.api.contract_setup import (
    BATCH,
    PATHS,
    RELABELLED,
    RELABELLING,
    TREE,
    Check,
    changed_params,
    require,
)
from hierbench.api.method import PostHoc, bases_of
from hierbench.hierarchy.tree import Hierarchy

NUM_VAL = 24  # examples of the validation split
TEST, VAL = 1, 100  # seeds of the bases' probabilities


def _probabilities(cls: type[PostHoc], seed: int = TEST, num: int = BATCH) -> list[Tensor]:
    """Return [B, K] of each base."""
    found = []
    for number in range(len(bases_of(cls))):
        generator = torch.Generator().manual_seed(seed + number)
        logits = torch.randn(num, len(PATHS), generator=generator, dtype=torch.float64)
        found.append((3.0 * logits).softmax(dim=1))
    return found


def _fitted(
    cls: type[PostHoc], tree: Hierarchy = TREE, params: BaseModel | None = None, order: Tensor | None = None
) -> PostHoc:
    """Return a method, fitted if it needs that; `order` [K] has the old index of each class of the tree."""
    posthoc = cls(tree, params or cls.Params())
    if cls.needs_validation:
        order = torch.arange(len(PATHS)) if order is None else order
        targets = torch.arange(NUM_VAL) % len(PATHS)
        torch.manual_seed(0)
        given = [one[:, order] for one in _probabilities(cls, VAL, NUM_VAL)]
        posthoc.fit(*given, targets=order.argsort()[targets])
    return posthoc


def _rescored(cls: type[PostHoc], params: BaseModel | None = None) -> Tensor:
    return _fitted(cls, params=params).rescore(*_probabilities(cls))


def _check_rescore(cls: type[PostHoc]) -> None:
    given, posthoc = _probabilities(cls), _fitted(cls)
    kept = [one.clone() for one in given]
    scores = posthoc.rescore(*given)
    require(scores.shape == given[0].shape, f"rescore must keep the shape, got {tuple(scores.shape)}")
    require(scores.isfinite().all(), "rescored values must be finite")
    require(all(map(torch.equal, given, kept)), "rescore must not change its arguments")
    require(torch.equal(scores, _rescored(cls)), "rescore must be deterministic")
    require(torch.equal(scores, posthoc.rescore(*given)), "rescore gives other scores when it is called again")
    rows = zip(*(one.split(1) for one in given), strict=True)
    alone = torch.cat([_fitted(cls).rescore(*row) for row in rows])
    require(torch.allclose(scores, alone), "an example's scores depend on the other examples")


def _check_rescore_relabelling(cls: type[PostHoc]) -> None:
    leaves = torch.tensor(RELABELLING)
    expected = _rescored(cls)[:, leaves]
    moved = _fitted(cls, RELABELLED, order=leaves).rescore(*(one[:, leaves] for one in _probabilities(cls)))
    require(torch.allclose(moved, expected), "relabelling the classes must permute the scores")


def _check_rescore_hyperparameters(cls: type[PostHoc]) -> None:
    default = _rescored(cls)
    for name, changed in changed_params(cls):
        require(not torch.equal(default, _rescored(cls, changed)), f"hyperparameter {name} does not change the scores")


def _check_bases(cls: type[PostHoc]) -> None:
    """Every base that is named acts, if not by default then with another hyperparameter."""
    bases, given = bases_of(cls), _probabilities(cls)
    variants = [None, *(changed for _, changed in changed_params(cls))]
    for number, base in enumerate(bases):
        other = [one.flip(0) if place == number else one for place, one in enumerate(given)]
        acts = False
        for params in variants:
            posthoc = _fitted(cls, params=params)
            acts |= not torch.equal(posthoc.rescore(*given), posthoc.rescore(*other))
        require(acts, f"the scores do not depend on the base {base}")


def _check_fit(cls: type[PostHoc]) -> None:
    """Fit to [N, K] of each base and targets [N]: neither is changed, and the same seed gives the same scores."""
    require(cls.needs_validation, "fit is never called: set needs_validation = True")
    given, targets = _probabilities(cls, VAL, NUM_VAL), torch.arange(NUM_VAL) % len(PATHS)
    kept: Any = [*(one.clone() for one in given), targets.clone()]
    posthoc = cls(TREE, cls.Params())
    torch.manual_seed(0)
    posthoc.fit(*given, targets=targets)
    require(all(map(torch.equal, [*given, targets], kept)), "fit must not change its arguments")
    require(torch.equal(posthoc.rescore(*_probabilities(cls)), _rescored(cls)), "fit must be deterministic")


CHECKS = (
    Check("shapes, finite values, no side effects", PostHoc, _check_rescore),
    Check("relabelling permutes the scores", PostHoc, _check_rescore_relabelling),
    Check("every hyperparameter acts", PostHoc, _check_rescore_hyperparameters),
    Check("every base acts", PostHoc, _check_bases, "base"),
    Check("fit before rescore", PostHoc, _check_fit, "fit"),
)
