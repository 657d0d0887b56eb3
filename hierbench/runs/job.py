"""A job: a spec with the method that it runs, and its state in a plan."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Self

from hierbench.api.method import Parameters, PostHoc
from hierbench.api.registry import LoadedMethod, find_method
from hierbench.config.spec import Spec

JobState = Literal["train", "rescore", "cached", "blocked"]


@dataclass(frozen=True)
class Job:
    """A spec with the methods that run it.

    `shown` is False for a base that was not requested; `bases` are the methods of `spec.bases`, in their order.
    """

    spec: Spec
    method: LoadedMethod
    shown: bool = True
    bases: tuple[LoadedMethod, ...] = ()

    @classmethod
    def received(cls, content: dict[str, Any], *references: str) -> Self:
        """Return the job that another process has sent as `spec.content()` and `references`.

        Raises:
            UserError: the method's file has gone or broken since.
        """
        method, *bases = map(find_method, references)
        return cls(Spec.model_validate(content), method, bases=tuple(bases))

    @property
    def references(self) -> tuple[str, ...]:
        """The method's name or path by which any process can find it, then those of its bases."""
        return (self.method.reference, *(base.reference for base in self.bases))

    @property
    def id(self) -> str:
        """The spec's id."""
        return self.spec.id

    @cached_property
    def params(self) -> Parameters:
        """The method's hyperparameters, typed; the spec holds them as JSON."""
        return self.method.cls.Params.model_validate(self.spec.method.params)

    @property
    def trains(self) -> bool:
        """Whether it trains, rather than re-ranks."""
        return not issubclass(self.method.cls, PostHoc)
