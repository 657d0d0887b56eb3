"""The report on a plan before it runs, with the estimated time on this machine; a dry run ends with it."""

from collections.abc import Callable, Sequence
from typing import Any

from hierbench.config.sections import FeatureType
from hierbench.execution import workers
from hierbench.execution.dry_run import Line, describe, say_notes, show_dry_run, summary
from hierbench.execution.estimate import estimate
from hierbench.execution.resources import make_setting
from hierbench.execution.session import Session
from hierbench.utils.console import say


def announce(
    session: Session,
    lines: Sequence[Line],
    models: Callable[[], dict[tuple[FeatureType, str], int]],
    **more: Any,
) -> bool:
    """Set where a plan runs, and report it with the estimated time; return False for a dry run, which ends here.

    Args:
        session: that has opened its inputs.
        lines: of the plan.
        models: counts the models' parameters, which a dry run shows.
        more: fields of the setting.
    """
    options, recipe, inputs = session.options, session.recipe, session.inputs
    num_training = sum(line.trains for line in lines)
    session.setting = make_setting(options, num_training, weights=inputs.weights, **more)
    kinds = [line.type for line in lines if line.state == "train" or (line.state == "blocked" and line.trains)]
    found = estimate(recipe, kinds, inputs, session.setting, measure=options.dry_run)
    if options.dry_run or inputs.prepared is None:
        show_dry_run(recipe, lines, found, models(), options.device, inputs.missing, as_json=options.as_json)
        return False
    say_notes(inputs.prepared)
    say(summary(recipe, lines, found.seconds, options.device, ""))
    if kinds and not session.setting.in_process and options.executor == "local" and not options.plan_only:
        workers.start_server()  # it imports while this process goes on
    for extraction in found.extractions:
        if not extraction.cached:
            say(describe(extraction, recipe))
    return True
