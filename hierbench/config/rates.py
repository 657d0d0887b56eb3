"""Learning rates of one type of model, and those that a method has of its own."""

from typing import Annotated, Any

from pydantic import Field, ValidationError

from hierbench.config.validation import Closed, first_problem
from hierbench.utils.errors import UserError

Rate = Annotated[float, Field(gt=0)]


class Rates(Closed):
    """Initial learning rates of one type of model."""

    backbone: Rate
    transform: Rate
    classifier: Rate


class OwnRates(Closed):
    """The learning rates that a method has of its own; None is that of the type."""

    backbone: Rate | None = None
    transform: Rate | None = None
    classifier: Rate | None = None


class Section(Closed):
    """What the section of every method may hold beside its hyperparameters."""

    lr: OwnRates = OwnRates()


PREFIX = "lr."
RATE_NAMES = tuple(PREFIX + name for name in Rates.model_fields)  # as in grids and in tuned.toml


def checked_section(section: dict[str, Any]) -> dict[str, Any]:
    """Return a method's section if its learning rates are valid; hyperparameters are checked where its class is known.

    Raises:
        UserError: `lr` is not a table, has an unknown name, or a rate that is not positive.
    """
    own_rates(section)
    return section


def own_rates(section: dict[str, Any]) -> dict[str, float]:
    """Return the learning rates that a method's section sets; errors are those of `checked_section`."""
    try:
        content = Section.model_validate({"lr": section.get("lr", {})})
    except ValidationError as error:
        raise UserError(first_problem(error, Section)) from None
    return content.lr.model_dump(exclude_none=True)


def flat_rates(points: Any) -> Any:
    """Return a method's grid with a table `lr` {name: values} written as "lr.name": values, anything else as it is."""
    if not isinstance(points, dict) or not isinstance(points.get("lr"), dict):
        return points
    others = {name: values for name, values in points.items() if name != "lr"}
    return others | {PREFIX + name: values for name, values in points["lr"].items()}
