"""The contract of every method, checked on a small ragged tree by the tests and by `hierbench methods check`.

Shapes: B batch, D features, K classes, M nodes of all levels, N nodes.
"""

import copy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from hierbench.api.contract_setup import (
    CONTRACT_TREE,
    NUM_EXAMPLES,
    NUM_INNER,
    PATHS,
    PROGRESS,
    RELABELLED,
    RELABELLING,
    Check,
    ContractError,
    build_method,
    changed_params,
    compute_objective,
    compute_scores,
    make_batch,
    require,
)
from hierbench.api.method import AnyMethod, Method, PostHoc, loss_names, trainable_groups
from hierbench.api.posthoc_contract import check_bases, check_fit, check_rescore, check_rescore_relabelling, rescore
from hierbench.utils.errors import UserError, error_line, is_interrupt, line_in


def _check_shapes(cls: type[Method]) -> None:
    method = build_method(cls)
    features, targets = make_batch(cls)
    for size in (NUM_EXAMPLES, 2):
        scores = compute_scores(method, features[:size])
        expected = (size, len(PATHS))
        require(scores.shape == expected, f"scores must be {expected} for {size} examples, got {tuple(scores.shape)}")
        require(scores.isfinite().all(), "scores must be finite")
    compute_objective(method, features, targets)


def _check_loss_names(cls: type[Method]) -> None:
    method = build_method(cls)
    features, targets = make_batch(cls)
    batches = [(features, targets), (features[:2], targets[:2]), (features, targets * 0), (features, targets.flip(0))]
    names: list[str] = []
    for inner, labels in batches * 2:
        names = loss_names(method.train().loss(method(inner), labels), names)


def _check_gradients(cls: type[Method]) -> None:
    method = build_method(cls)
    features, targets = make_batch(cls)
    features.requires_grad_()
    for progress in PROGRESS:
        method.progress = progress
        compute_objective(method.train(), features, targets).backward()
    for name, parameter in [*method.named_parameters(), ("the features", features)]:
        if parameter.requires_grad:
            gradient = torch.zeros(1) if parameter.grad is None else parameter.grad
            require(gradient.any(), f"no gradient reaches {name}")
            require(gradient.isfinite().all(), f"the gradient of {name} is not finite")


def _check_targets(cls: type[Method]) -> None:
    method = build_method(cls)
    features, targets = make_batch(cls)
    depends = False
    for progress in PROGRESS:
        method.progress = progress
        other = compute_objective(method, features, (targets + 1) % len(PATHS))
        depends |= not torch.equal(compute_objective(method, features, targets), other)
    require(depends, "the loss does not depend on the targets")


def _require_same(cls: type[Method], first: Method, second: Method, subject: str, advice: str) -> None:
    features, targets = make_batch(cls)
    losses = [compute_objective(method.train(), features, targets) for method in (first, second)]
    require(torch.equal(*losses), f"{subject} gives another loss: {advice}")
    require(
        torch.equal(compute_scores(first, features), compute_scores(second, features)),
        f"{subject} gives other scores: {advice}",
    )


def _check_determinism(cls: type[Method]) -> None:
    _require_same(
        cls, build_method(cls), build_method(cls), "the same seed", "take randomness from torch's global generator"
    )


def _check_independence(cls: type[Method]) -> None:
    method = build_method(cls)
    features, _ = make_batch(cls)
    alone = torch.cat([compute_scores(method, row) for row in features.split(1)])
    message = "an example's scores depend on the rest of the batch"
    require(torch.allclose(compute_scores(method, features), alone, rtol=1e-4, atol=1e-5), message)


def _check_relabelling(cls: type[Method]) -> None:
    """Permute the classes in the tree, the targets and dimensions of size K, M, N or N - 1: the scores must follow."""
    leaves = torch.tensor(RELABELLING)
    num_coarse = sum(CONTRACT_TREE.level_sizes[:-1])
    # By size: a row per class; per entry of the levels, or per node with the root, both 13; per node below the root.
    orders = [torch.cat([torch.arange(before), leaves + before]) for before in (0, num_coarse, NUM_INNER)]
    order_of = {len(order): order for order in orders}
    method = build_method(cls)
    state = {}
    for name, value in method.state_dict().items():
        for dim, size in enumerate(value.shape):
            if size in order_of:
                value = value.index_select(dim, order_of[size])
        state[name] = value
    problem = _relabelled_problem(cls, method, state)
    if problem:
        raise ContractError(problem + _derived_tables(cls, method, state))


def _relabelled_problem(cls: type[Method], method: Method, state: dict[str, Tensor]) -> str:
    """Return the problem of a model over the relabelled classes that loads this state, "" without one."""
    moved = build_method(cls, RELABELLED, seed=3)
    leaves = torch.tensor(RELABELLING)
    features, targets = make_batch(cls)
    moved_features = features[:, leaves] if features.shape[1] == len(PATHS) else features
    moved_targets = leaves.argsort()[targets]
    try:
        moved.load_state_dict(moved.state_dict() | state)
    except RuntimeError as error:
        return error_line(error)
    expected = compute_scores(method, features)[:, leaves]
    if not torch.allclose(compute_scores(moved, moved_features), expected, rtol=1e-4, atol=1e-5):
        return "relabelling the classes must permute the scores (one row per class, or per node with the classes last)"
    losses = compute_objective(method, features, targets), compute_objective(moved, moved_features, moved_targets)
    return "" if torch.allclose(*losses, rtol=1e-4, atol=1e-5) else "relabelling the classes changes the loss"


def _derived_tables(cls: type[Method], method: Method, state: dict[str, Tensor]) -> str:
    """Return advice if only permuted buffers are the problem: derived again from the tree, they would be right."""
    buffers = [name for name, _ in method.named_buffers() if name in state]
    derived_state = build_method(cls, RELABELLED, seed=3).state_dict()
    for names in ([name for name in buffers if not state[name].is_floating_point()], buffers):
        tables = [name for name in names if not torch.equal(derived_state[name], state[name])]
        kept = {name: value for name, value in state.items() if name not in tables}
        if tables and not _relabelled_problem(cls, method, kept):
            named = ", ".join(tables)
            return f"; the reason is the permuted {named}: register derived index tables with persistent=False"
    return ""


def _check_checkpoint(cls: type[Method]) -> None:
    method = build_method(cls)
    other = build_method(cls, seed=4)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    _require_same(cls, method, other, "a loaded checkpoint", "register random tensors as parameters or buffers")


def _objectives(cls: type[Method], params: BaseModel | None = None) -> Tensor:
    """Return the objective at the beginning, in the middle and at the end of the training."""
    method = build_method(cls, params=params)
    values = list[Tensor]()
    for method.progress in PROGRESS:
        values.append(compute_objective(method, *make_batch(cls)))
    return torch.stack(values)


def _check_hyperparameters(cls: Any) -> None:
    numbers_of, output_name = (rescore, "scores") if issubclass(cls, PostHoc) else (_objectives, "objective")
    default = numbers_of(cls)
    for name, changed in changed_params(cls):
        require(
            not torch.equal(default, numbers_of(cls, changed)),
            f"hyperparameter {name} does not change the {output_name}",
        )


def _check_progress(cls: type[Method]) -> None:
    """At any time of the training the loss has the same finite terms, and scores do not depend on it."""
    method = build_method(cls)
    features, targets = make_batch(cls)
    scores = compute_scores(method, features)
    names = list[str]()
    for progress in PROGRESS:
        method.progress = progress
        compute_objective(method.train(), features, targets)
        names = loss_names(method.loss(method(features), targets), names)
        other = build_method(cls)  # its norms have seen no batch
        other.progress = progress
        require(
            torch.equal(compute_scores(other, features), scores), "scores depend on progress, which only loss may read"
        )


def _check_groups(cls: type[Method]) -> None:
    """Own groups have free names, share no parameter, and are the same whenever the method is built."""
    method = build_method(cls)
    groups = list(method.parameter_groups())
    shared = trainable_groups(method)
    again = trainable_groups(build_method(cls, RELABELLED, seed=3))
    trained = {id(parameter) for parameter in method.parameters() if parameter.requires_grad}
    require({id(p) for members in shared.values() for p in members} == trained, "a parameter is in no group")
    require(bool(groups), "parameter_groups is defined and names no group: leave it out")
    require(list(again) == list(shared), "the names of the groups must follow from the tree and the hyperparameters")
    for name in groups:
        require(bool(shared[name]), f"group {name} has no trainable parameter")


def _check_level_scores(cls: type[Method]) -> None:
    """There is a finite score for each node of each level, and examples do not mix."""
    method = build_method(cls).eval()
    features, _ = make_batch(cls)
    with torch.no_grad():
        predictions = [method.level_scores(method(features[:size])) for size in (NUM_EXAMPLES, 2, 1)]
    all_levels: list[Tensor] = []
    for size, levels in zip((NUM_EXAMPLES, 2, 1), predictions, strict=True):
        if not isinstance(levels, list):
            raise ContractError("level_scores must return a list of tensors, coarsest level first")
        all_levels = all_levels or levels
        shapes = [tuple(level.shape) for level in levels]
        expected = [(size, nodes) for nodes in CONTRACT_TREE.level_sizes]
        require(shapes == expected, f"level_scores must be {expected} for {size} examples, got {shapes}")
        for number, (level, expected_level) in enumerate(zip(levels, all_levels, strict=True), 1):
            require(level.isfinite().all(), f"level_scores of level {number} must be finite")
            same = torch.allclose(level, expected_level[:size], rtol=1e-4, atol=1e-5)
            require(same, f"an example's level_scores of level {number} depend on the rest of the batch")


CHECKS = (
    Check("shapes and finite values", Method, _check_shapes),
    Check("loss terms keep their names", Method, _check_loss_names),
    Check("gradients reach every parameter", Method, _check_gradients),
    Check("the loss depends on the targets", Method, _check_targets),
    Check("same seed, same numbers", Method, _check_determinism),
    Check("examples do not mix", Method, _check_independence),
    Check("relabelling permutes the scores", Method, _check_relabelling),
    Check("checkpoint round trip", Method, _check_checkpoint),
    Check("every hyperparameter acts", Method, _check_hyperparameters),
    Check("progress changes only the loss", Method, _check_progress),
    Check("own groups share no parameter", Method, _check_groups, "parameter_groups"),
    Check("scores for every level", Method, _check_level_scores, "level_scores"),
    Check("shapes, finite values, no side effects", PostHoc, check_rescore),
    Check("relabelling permutes the scores", PostHoc, check_rescore_relabelling),
    Check("every hyperparameter acts", PostHoc, _check_hyperparameters),
    Check("every base acts", PostHoc, check_bases, "base"),
    Check("fit before rescore", PostHoc, check_fit, "fit"),
)


def list_checks(cls: AnyMethod) -> list[Check]:
    """Return the checks of a method's class: the common checks of its kind, then the checks of its hooks."""
    return [check for check in CHECKS if check.concerns(cls)]


def check_method(cls: AnyMethod) -> Iterator[tuple[str, str]]:
    """Run all checks on a method's class; yield each check's name and its problem, "" if it passed.

    Where the first fails, that of shapes and finite values, it is the last: the others would fail for the same reason.
    """
    for number, check in enumerate(list_checks(cls)):
        problem = _problem(check, cls)
        yield check.name, problem
        if problem and number == 0:
            return


def _problem(check: Check, cls: AnyMethod) -> str:
    try:
        check.run(cls)
    except BaseException as error:  # foreign code may raise anything
        if is_interrupt(error):
            raise
        if isinstance(error, ContractError | UserError):
            return str(error)
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        return error_line(error) + line_in(error, Path(file or "").name)
    return ""
