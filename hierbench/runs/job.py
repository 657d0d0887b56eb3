"""A job: a spec with the method that it runs, and what a plan says will happen to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hierbench.api.method import PostHoc
from hierbench.api.registry import Found
from hierbench.config.spec import Spec

State = Literal["train", "rescore", "cached", "blocked"]


@dataclass(frozen=True)
class Job:
    """A spec with what is needed to run it; `shown` is False for a base that nobody asked to see."""

    spec: Spec
    found: Found
    shown: bool = True

    @property
    def id(self) -> str:
        """The spec's id."""
        return self.spec.id

    @property
    def trains(self) -> bool:
        """Whether it trains, rather than re-ranks."""
        return not issubclass(self.found.cls, PostHoc)
