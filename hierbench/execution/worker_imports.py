"""Imports of the server of worker processes, once for all of them: all modules that a training job needs."""

from hierbench.execution import run_job
from hierbench.training.fabric import import_fabric

__all__ = ["run_job"]

import_fabric()
