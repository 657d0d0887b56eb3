"""What every method must do, checked on a small ragged tree by our tests and by `hierbench methods check`."""

from collections.abc import Iterator

from hierbench.api import contract_posthoc, contract_trained
from hierbench.api.contract_setup import Check, ContractError
from hierbench.api.method import AnyMethod
from hierbench.utils.errors import UserError, is_interrupt, one_line_of

CHECKS = (*contract_trained.CHECKS, *contract_posthoc.CHECKS)


def checks_of(cls: AnyMethod) -> list[Check]:
    """Return the checks of a method's class: those of all methods of its kind, then those of its hooks."""
    return [check for check in CHECKS if check.concerns(cls)]


def check_method(cls: AnyMethod) -> Iterator[tuple[str, str]]:
    """Run all checks on a method's class; yield each check's name and what is wrong, "" if it passed.

    Where the first fails, that of shapes and finite values, it is the last: the others would fail for the same reason.
    """
    for number, check in enumerate(checks_of(cls)):
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
        return str(error) if isinstance(error, ContractError | UserError) else one_line_of(error)
    return ""
