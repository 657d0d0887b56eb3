"""A job: a spec with the method that it runs, and what a plan says will happen to it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

from hierbench.api.method import Parameters, PostHoc
from hierbench.api.registry import Found, find_method
from hierbench.config.spec import Spec

State = Literal["train", "rescore", "cached", "blocked"]


@dataclass(frozen=True)
class Job:
    """A spec with what is needed to run it; `shown` is False for a base that was not requested."""

    spec: Spec
    found: Found
    shown: bool = True

    @classmethod
    def received(cls, content: dict[str, Any], reference: str) -> Self:
        """Return the job that another process has sent as `spec.content()` and `found.reference`.

        Raises:
            UserError: the method's file has gone or broken since.
        """
        return cls(Spec.model_validate(content), find_method(reference))

    @property
    def id(self) -> str:
        """The spec's id."""
        return self.spec.id

    @cached_property
    def params(self) -> Parameters:
        """The method's hyperparameters, typed; the spec holds them as JSON."""
        return self.found.cls.Params.model_validate(self.spec.method.params)

    @property
    def trains(self) -> bool:
        """Whether it trains, rather than re-ranks."""
        return not issubclass(self.found.cls, PostHoc)
