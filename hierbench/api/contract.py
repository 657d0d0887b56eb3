"""What every method must do, checked on a small ragged tree by our tests and by `hierbench methods check`.

Shapes: B batch, D features, K classes, M nodes of all levels, N nodes.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin

import torch
from pydantic import BaseModel, ValidationError
from torch import Tensor

from hierbench.api.method import Method, PostHoc, loss_names
from hierbench.hierarchy.tree import Hierarchy
from hierbench.utils.errors import UserError, is_interrupt, one_line_of

BATCH = 8
NUM_FEATURES = 20  # of type I: differs from all sizes below, so that a dimension's size says what it counts
PATHS = {
    "ash": ("plant", "tree", "ash"),
    "oak": ("plant", "tree", "oak"),
    "fern": ("plant", "fern"),
    "cat": ("animal", "mammal", "cat"),
    "dog": ("animal", "mammal", "dog"),
    "owl": ("animal", "bird", "owl"),
    "hen": ("animal", "bird", "hen"),
}
TREE = Hierarchy.from_paths(PATHS)
NUM_INNER = 5  # inner nodes of TREE below the root
RELABELLING = [3, 6, 0, 5, 1, 4, 2]  # new class i is old class RELABELLING[i]
RELABELLED = Hierarchy.from_paths({TREE.classes[old]: PATHS[TREE.classes[old]] for old in RELABELLING})

Check = Callable[[Any], None]


class ContractError(AssertionError):
    """A method breaks the contract; the message says how."""


def check_method(cls: type[Method] | type[PostHoc]) -> Iterator[tuple[str, str]]:
    """Run all checks on a method's class; yield each check's name and what is wrong, "" if it passed."""
    checks = METHOD_CHECKS if issubclass(cls, Method) else POSTHOC_CHECKS
    for name, check in checks.items():
        try:
            check(cls)
        except ContractError as error:
            yield name, str(error)
        except BaseException as error:  # foreign code may raise anything
            if is_interrupt(error):
                raise
            yield name, one_line_of(error)
        else:
            yield name, ""


def _require(condition: bool | Tensor, message: str) -> None:
    if not bool(condition):
        raise ContractError(message)


def _num_features(cls: type[Method]) -> int:
    return NUM_FEATURES if "type-I" in cls.types else len(PATHS)


def _built(cls: type[Method], tree: Hierarchy = TREE, params: BaseModel | None = None, seed: int = 0) -> Method:
    torch.manual_seed(seed)
    return cls(tree, _num_features(cls), params or cls.Params())


def _batch(cls: type[Method]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    features = torch.randn(BATCH, _num_features(cls), generator=generator)
    return features, torch.arange(BATCH) % len(PATHS)


def _objective(method: Method, features: Tensor, targets: Tensor) -> Tensor:
    torch.manual_seed(2)
    terms = method.loss(method(features), targets)
    _require(isinstance(terms, dict) and bool(terms), "loss must return a dict of named terms")
    for name, term in terms.items():
        _require(isinstance(term, Tensor) and term.ndim == 0, f"loss term {name!r} must be a scalar tensor")
        _require(term.isfinite(), f"loss term {name!r} is {term.item()} on ordinary features")
    return torch.stack(list(terms.values())).sum()


def _scores(method: Method, features: Tensor) -> Tensor:
    method.eval()
    with torch.no_grad():
        return method.scores(method(features))


def _check_shapes(cls: type[Method]) -> None:
    method, (features, targets) = _built(cls), _batch(cls)
    for size in (BATCH, 2):
        scores, expected = _scores(method, features[:size]), (size, len(PATHS))
        _require(scores.shape == expected, f"scores must be {expected} for {size} examples, got {tuple(scores.shape)}")
        _require(scores.isfinite().all(), "scores must be finite")
    _objective(method, features, targets)


def _check_loss_names(cls: type[Method]) -> None:
    method, (features, targets) = _built(cls), _batch(cls)
    batches = [(features, targets), (features[:2], targets[:2]), (features, targets * 0), (features, targets.flip(0))]
    names: list[str] = []
    for inner, labels in batches * 2:
        try:
            names = loss_names(method.train().loss(method(inner), labels), names)
        except UserError as error:
            raise ContractError(str(error)) from None


def _check_gradients(cls: type[Method]) -> None:
    method, (features, targets) = _built(cls), _batch(cls)
    features.requires_grad_()
    _objective(method.train(), features, targets).backward()
    for name, parameter in [*method.named_parameters(), ("the features", features)]:
        if parameter.requires_grad:
            _require(parameter.grad is not None and parameter.grad.any(), f"no gradient reaches {name}")
            _require(parameter.grad.isfinite().all(), f"the gradient of {name} is not finite")  # type: ignore[union-attr]


def _check_targets(cls: type[Method]) -> None:
    method, (features, targets) = _built(cls), _batch(cls)
    other = _objective(method, features, (targets + 1) % len(PATHS))
    _require(not torch.equal(_objective(method, features, targets), other), "the loss does not depend on the targets")


def _require_same(cls: type[Method], first: Method, second: Method, what: str, advice: str) -> None:
    features, targets = _batch(cls)
    losses = [_objective(method.train(), features, targets) for method in (first, second)]
    _require(torch.equal(*losses), f"{what} gives another loss: {advice}")
    _require(torch.equal(_scores(first, features), _scores(second, features)), f"{what} gives other scores: {advice}")


def _check_determinism(cls: type[Method]) -> None:
    _require_same(cls, _built(cls), _built(cls), "the same seed", "take randomness from torch's global generator")


def _check_independence(cls: type[Method]) -> None:
    method, (features, _) = _built(cls), _batch(cls)
    alone = torch.cat([_scores(method, row) for row in features.split(1)])
    message = "an example's scores depend on the rest of the batch"
    _require(torch.allclose(_scores(method, features), alone, rtol=1e-4, atol=1e-5), message)


def _check_relabelling(cls: type[Method]) -> None:
    """Permute the classes in the tree, the targets and dimensions of size K, M, N or N - 1: the scores must follow."""
    leaves, num_coarse = torch.tensor(RELABELLING), sum(TREE.level_sizes[:-1])
    # By size: a row per class; per entry of the levels, or per node with the root, both 13; per node below the root.
    orders = [torch.cat([torch.arange(before), leaves + before]) for before in (0, num_coarse, NUM_INNER)]
    order_of = {len(order): order for order in orders}
    method, state = _built(cls), {}
    for name, value in method.state_dict().items():
        for dim, size in enumerate(value.shape):
            if size in order_of:
                value = value.index_select(dim, order_of[size])
        state[name] = value
    if problem := _relabelled_problem(cls, method, state):
        raise ContractError(problem + _derived_tables(cls, method, state))


def _relabelled_problem(cls: type[Method], method: Method, state: dict[str, Tensor]) -> str:
    """Return what is wrong with a model over the relabelled classes that loads this state, "" if nothing is."""
    moved, leaves = _built(cls, RELABELLED, seed=3), torch.tensor(RELABELLING)
    features, targets = _batch(cls)
    moved_features = features[:, leaves] if features.shape[1] == len(PATHS) else features
    moved_targets = leaves.argsort()[targets]
    try:
        moved.load_state_dict(moved.state_dict() | state)
    except RuntimeError as error:
        return one_line_of(error)
    expected = _scores(method, features)[:, leaves]
    if not torch.allclose(_scores(moved, moved_features), expected, rtol=1e-4, atol=1e-5):
        return "relabelling the classes must permute the scores (one row per class, or per node with the classes last)"
    losses = _objective(method, features, targets), _objective(moved, moved_features, moved_targets)
    return "" if torch.allclose(*losses, rtol=1e-4, atol=1e-5) else "relabelling the classes changes the loss"


def _derived_tables(cls: type[Method], method: Method, state: dict[str, Tensor]) -> str:
    """Return advice if only permuted buffers are the problem: derived again from the tree, they would be right."""
    buffers = [name for name, _ in method.named_buffers() if name in state]
    own = _built(cls, RELABELLED, seed=3).state_dict()
    for names in ([name for name in buffers if not state[name].is_floating_point()], buffers):
        tables = [name for name in names if not torch.equal(own[name], state[name])]
        kept = {name: value for name, value in state.items() if name not in tables}
        if tables and not _relabelled_problem(cls, method, kept):
            named = ", ".join(tables)
            return f"; the reason is the permuted {named}: register derived index tables with persistent=False"
    return ""


def _check_checkpoint(cls: type[Method]) -> None:
    method, other = _built(cls), _built(cls, seed=4)
    other.load_state_dict(copy.deepcopy(method.state_dict()))
    _require_same(cls, method, other, "a loaded checkpoint", "register what is random as a parameter or buffer")


def _check_hyperparameters(cls: type[Method]) -> None:
    features, targets = _batch(cls)
    default = _objective(_built(cls), features, targets)
    for name, changed in _changed_params(cls):
        moved = _objective(_built(cls, params=changed), features, targets)
        _require(not torch.equal(default, moved), f"hyperparameter {name} does not change the objective")


def _changed_params(cls: type[Method] | type[PostHoc]) -> Iterator[tuple[str, BaseModel]]:
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


def _probabilities() -> Tensor:
    generator = torch.Generator().manual_seed(1)
    return (3.0 * torch.randn(BATCH, len(PATHS), generator=generator, dtype=torch.float64)).softmax(dim=1)


def _check_rescore(cls: type[PostHoc]) -> None:
    given = _probabilities()
    kept = given.clone()
    scores = cls(TREE).rescore(given)
    _require(scores.shape == given.shape, f"rescore must keep the shape, got {tuple(scores.shape)}")
    _require(scores.isfinite().all(), "rescored values must be finite")
    _require(torch.equal(given, kept), "rescore must not change its argument")
    _require(torch.equal(scores, cls(TREE).rescore(given)), "rescore must be deterministic")
    alone = torch.cat([cls(TREE).rescore(row) for row in given.split(1)])
    _require(torch.allclose(scores, alone), "an example's scores depend on the other examples")


def _check_rescore_relabelling(cls: type[PostHoc]) -> None:
    given, leaves = _probabilities(), torch.tensor(RELABELLING)
    expected = cls(TREE).rescore(given)[:, leaves]
    moved = cls(RELABELLED).rescore(given[:, leaves])
    _require(torch.allclose(moved, expected), "relabelling the classes must permute the scores")


def _check_rescore_hyperparameters(cls: type[PostHoc]) -> None:
    default = cls(TREE).rescore(_probabilities())
    for name, changed in _changed_params(cls):
        moved = cls(TREE, changed).rescore(_probabilities())
        _require(not torch.equal(default, moved), f"hyperparameter {name} does not change the scores")


METHOD_CHECKS: dict[str, Check] = {
    "shapes and finite values": _check_shapes,
    "loss terms keep their names": _check_loss_names,
    "gradients reach every parameter": _check_gradients,
    "the loss depends on the targets": _check_targets,
    "same seed, same numbers": _check_determinism,
    "examples do not mix": _check_independence,
    "relabelling permutes the scores": _check_relabelling,
    "checkpoint round trip": _check_checkpoint,
    "every hyperparameter acts": _check_hyperparameters,
}
POSTHOC_CHECKS: dict[str, Check] = {
    "shapes, finite values, no side effects": _check_rescore,
    "relabelling permutes the scores": _check_rescore_relabelling,
    "every hyperparameter acts": _check_rescore_hyperparameters,
}
