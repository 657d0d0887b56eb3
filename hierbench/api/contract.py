"""What every method must do, checked on a small ragged tree by our tests and by `hierbench methods check`."""

from collections.abc import Iterator
from typing import Any

from hierbench.api.contract_posthoc import POSTHOC_CHECKS, POSTHOC_HOOKS
from hierbench.api.contract_setup import TREE, Check, ContractError
from hierbench.api.contract_trained import METHOD_CHECKS, METHOD_HOOKS
from hierbench.api.isolation import NOT_RUN
from hierbench.api.method import Method, PostHoc, bases_of
from hierbench.utils.errors import is_interrupt, one_line_of

__all__ = [
    "METHOD_CHECKS",
    "METHOD_HOOKS",
    "POSTHOC_CHECKS",
    "POSTHOC_HOOKS",
    "TREE",
    "ContractError",
    "check_method",
    "checks_of",
]


def uses(cls: type[Method] | type[PostHoc], hook: str) -> bool:
    """Whether a method's class defines an optional part of the interface."""
    if issubclass(cls, Method):
        return getattr(cls, hook) is not getattr(Method, hook)
    if hook == "base":
        return len(bases_of(cls)) > 1
    return cls.needs_validation or getattr(cls, hook) is not getattr(PostHoc, hook)


def checks_of(cls: type[Method] | type[PostHoc]) -> dict[str, Check]:
    """Return the checks of a method's class by name: those of all methods of its kind, then those of its hooks."""
    trained = issubclass(cls, Method)
    hooks = METHOD_HOOKS if trained else POSTHOC_HOOKS
    own = {name: check for name, (hook, check) in hooks.items() if uses(cls, hook)}
    return (METHOD_CHECKS if trained else POSTHOC_CHECKS) | own


def check_method(cls: type[Method] | type[PostHoc]) -> Iterator[tuple[str, str]]:
    """Run all checks on a method's class; yield each check's name and what is wrong, "" if it passed.

    Where the first fails, that of shapes and finite values, the others would fail for the same reason and are NOT_RUN.
    """
    first_failed = False
    for number, (name, check) in enumerate(checks_of(cls).items()):
        problem = NOT_RUN if first_failed else _problem(check, cls)
        first_failed |= number == 0 and bool(problem)
        yield name, problem


def _problem(check: Check, cls: Any) -> str:
    try:
        check(cls)
    except ContractError as error:
        return str(error)
    except BaseException as error:  # foreign code may raise anything
        if is_interrupt(error):
            raise
        return one_line_of(error)
    return ""
