"""Learning rates of one type of model, and a method's own rates."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError, model_validator

from hierbench.config.validation import Closed, first_problem
from hierbench.utils.errors import UserError, unknown_name

Rate = Annotated[float, Field(gt=0, strict=True)]  # true is no rate


class Rates(Closed):
    """Initial learning rates of one type of model."""

    backbone: Rate
    transform: Rate
    classifier: Rate


class JobRates(Rates):
    """Initial learning rates of one job, with the method's own groups as far as the recipe names them."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Rate]

    @model_validator(mode="before")
    @classmethod
    def _of_type(cls, rates: Any) -> Any:
        return rates.model_dump() if isinstance(rates, Rates) else rates

    def of(self, group: str) -> float:
        """Return a group's rate; an own group without one has the classifier's."""
        return float(self.model_dump().get(group, self.classifier))


class OwnRates(Closed):
    """Learning rates of one method; None takes the rate of the type.

    Other names are those of the method's own groups, see `Method.parameter_groups` and `check_group_names`.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Rate]

    backbone: Rate | None = None
    transform: Rate | None = None
    classifier: Rate | None = None


class Section(Closed):
    """The keys that the section of every method may have beside its hyperparameters."""

    lr: OwnRates = OwnRates()


PREFIX = "lr."
RATE_NAMES = tuple(PREFIX + name for name in Rates.model_fields)  # as in grids and in tuned.toml


def checked_section(section: dict[str, Any]) -> dict[str, Any]:
    """Return a method's section if its learning rates are valid; hyperparameters are checked where its class is known.

    Raises:
        UserError: `lr` is not a table, or has a rate that is not positive.
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


def check_group_names(names: Sequence[str], method_groups: Sequence[str] = (), section: str = "") -> None:
    """Raise a UserError for an unlisted learning rate: neither of the model's nor of a method's own groups."""
    allowed = [*RATE_NAMES, *(PREFIX + name for name in method_groups if PREFIX + name not in RATE_NAMES)]
    for name in names:
        if PREFIX + name not in allowed:
            raise UserError(f"{section}{unknown_name('key', PREFIX + name, allowed)}")


def flat_rates(points: Any) -> Any:
    """Return a method's grid with a table `lr` {name: values} written as "lr.name": values, anything else as it is."""
    if not isinstance(points, dict) or not isinstance(points.get("lr"), dict):
        return points
    others = {name: values for name, values in points.items() if name != "lr"}
    return others | {PREFIX + name: values for name, values in points["lr"].items()}
