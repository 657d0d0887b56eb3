"""A run's record against its method: its code and its title.

Only installed methods are run. A file that came with a run is compared with its digest, and never imported.
"""

import os
from collections.abc import Iterable

from hierbench.api.registry import InstalledMethods
from hierbench.runs.method_files import kept_source
from hierbench.runs.record import Record
from hierbench.runs.run_check import RunCheck


def check_method(check: RunCheck, methods: InstalledMethods) -> None:
    """Compare a run with its method: the file kept beside it, or the installed one if that is the code that ran."""
    spec = check.record.job
    kept = _check_kept_file(check)
    method = methods.matching(spec)
    installed = methods.installed(spec.method.name)
    if method is not None:
        if check.record.result["title"] != method.cls.title:
            title = check.record.result["title"]
            check.reject(f"metrics.json is titled {title!r}, and {method.name} is {method.cls.title!r}")
    elif installed is not None and not kept:
        check.note(
            f"other code: {spec.method.name} ran with version {spec.method.version}, code "
            f"{check.record.method_digest[:12]}, and the installed file has {installed.cls.version}, "
            f"{installed.digest[:12]}"
        )
    elif not kept:
        check.note(f"the code of {spec.method.name} is not here: it is not installed, and not kept with the run")


def changed_methods(runs: Iterable[Record], methods: InstalledMethods) -> list[str]:
    """Return "NAME VERSION (digest)" of the project's methods with another file now than when they ran."""
    ran = {(run.job.method.name, run.method_digest): run.job for run in runs if run.spec is not None}
    changed = []
    for (name, digest), spec in sorted(ran.items()):
        method = methods.matching(spec)
        if method is not None and method.digest != digest:
            changed.append(f"{name} {method.cls.version} ({digest[:12]})")
    return changed


def _check_kept_file(check: RunCheck) -> bool:
    """Compare the file of a user's own method with the digest in the spec; return whether there is one."""
    spec = check.record.job
    name = f"{spec.method.name}.py"
    if "/" in name or not os.path.lexists(check.record.folder / name):
        return False
    if kept_source(check.record) is None:
        check.reject(f"{name} beside it is not the code that its spec names")
    return True
