"""Running the file of a user's method, rule or metric: as it is now, never from cached bytecode."""

import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from hierbench.utils.errors import UserError, foreign_errors


def run_file(
    path: Path, kind: str, problem: Callable[[BaseException], Exception], passing: type[Exception] = UserError
) -> ModuleType:
    """Return the module that a Python file makes, known to `sys.modules` by a name of its own.

    Python's import takes cached bytecode for that of a file of the same size and second: an edited file could run as it
    was before, under the digest of the new text.

    Args:
        path: of the file.
        kind: of what it defines, for the module's name.
        problem: the error for an exception of the file.
        passing: errors that are raised as they are.

    Raises:
        UserError: it is no Python file.
    """
    if not path.is_file() or path.suffix != ".py":
        raise UserError(f"{path} is not a Python file")
    name = f"hierbench_{kind}_{sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = str(path)
    with foreign_errors(problem, passing=passing):
        exec(compile(path.read_bytes(), str(path), "exec", dont_inherit=True), vars(module))
    return module
