"""The file of a method's class: the one that it is in, or of a notebook's or script's class one written for it."""

import re
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

from hierbench.api.method import Method, PostHoc
from hierbench.api.registry import check_class, find_method
from hierbench.experiments.interface.extraction import standalone
from hierbench.experiments.interface.sameness import difference
from hierbench.runs.store import Store
from hierbench.utils.errors import BrokenMethodError, UserError
from hierbench.utils.files import refuse_links, write_text

FOLDER = ".methods"  # in the runs folder
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")  # a dot would divide the key of a hyperparameter


def file_of(cls: type[Method] | type[PostHoc], runs: Path) -> Path:
    """Return a file that holds a class alone, as `--methods` takes.

    That is its module's file if this is named as the method; else a file that is written below the runs folder, whose
    path depends on its text, with the class and what it needs of its module or notebook.

    Raises:
        UserError: the class lacks what a method must declare, there is no source of it, this does not stand alone, or
            it gives something else than what is in memory, see `difference`.
    """
    name: Any = getattr(cls, "name", None)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise UserError(f"the class {cls.__name__} must set name to letters, digits, _ and -, not {name!r}")
    check_class(name, cls)
    module = sys.modules.get(cls.__module__)
    file = getattr(module, "__file__", None)
    if file is not None and cls.__module__ != "__main__" and Path(file).name == f"{name}.py":
        path = Path(file).resolve()
    else:
        text = standalone(cls)
        store = Store(runs)
        store.writable()
        folder = refuse_links(runs.resolve(), FOLDER, sha256(text.encode()).hexdigest()[:16])
        path = folder / f"{name}.py"
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(path, text)
    try:
        found = find_method(str(path))
    except BrokenMethodError as error:
        raise UserError(f"the source of {cls.__name__}, kept in {path}, does not stand alone: {error}") from None
    if different := difference(cls, found.cls, vars(module), path.read_text(encoding="utf-8")):
        raise UserError(
            f"the source of {cls.__name__} in {path} is not what is in memory: {different} differs; define it again, "
            "in one piece that gives the same each time (after editing a module, restart Python)"
        )
    return path
