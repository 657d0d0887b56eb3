"""`hierbench methods new`: the commented template of a method."""

import re
from importlib import resources
from pathlib import Path

from hierbench.api.registry import method_names
from hierbench.config.sections import METHOD_GROUPS
from hierbench.utils.errors import UserError
from hierbench.utils.files import write_text


def new_method(name: str, folder: Path) -> Path:
    """Write the commented template of a method called `name` and return its path.

    Raises:
        UserError: the name is invalid or taken, or there is no such folder.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", name) or name in METHOD_GROUPS:
        raise UserError(f"a method's name is lower-case letters, digits, - and _, starting with a letter; got {name!r}")
    path = folder / f"{name}.py"
    if path.exists() or name in method_names():
        raise UserError(f"method {name} already exists" + (f": {path}" if path.exists() else ""))
    if not folder.is_dir():
        raise UserError(f"no folder {folder}")
    template = resources.files("hierbench.api").joinpath("method.py.tmpl").read_text(encoding="utf-8")
    class_name = "".join(part.capitalize() for part in re.split("[-_]", name)) + "Method"
    write_text(path, template.replace("NAME", name).replace("CLASS", class_name))
    return path
