"""What the server of worker processes imports, once for all of them: whatever a job that trains needs."""

from hierbench.execution import run_job
from hierbench.training.fabric import import_fabric

__all__ = ["run_job"]

import_fabric()  # not as `import lightning_fabric`, which takes seconds longer
