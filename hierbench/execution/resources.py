"""The resources of jobs: folders, devices, processes and threads. None of them changes a job's id."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import torch

from hierbench.config.options import Device, Options
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from hierbench.utils.processes import num_cores
from hierbench.utils.text import is_path


@dataclass(frozen=True)
class Setting:
    """The resources of jobs, which do not change a job's id."""

    runs: Path
    data_dir: Path
    device: str = "cpu"
    workers: int = 1
    isolated: bool = False  # whether a single worker is a process of its own too, as a user's file or CUDA may fail it
    threads: int | None = None  # of each computing process; None for PyTorch's default
    devices: int = 1  # that share one job
    jobs_per_gpu: int = 1
    gpus: tuple[int, ...] = ()  # indices of the usable CUDA devices, () for all
    weights: Path | None = None  # file of initial backbone weights

    @property
    def store(self) -> Store:
        """The runs folder."""
        return Store(self.runs)

    @property
    def in_process(self) -> bool:
        """Whether jobs train in the command's own process."""
        return self.workers == 1 and not self.isolated

    def of_worker(self, slot: int) -> Self:
        """Return the setting of one worker; workers take turns over the CUDA devices, in groups of `devices`."""
        if self.device != "cuda":
            return self
        gpus = self.gpus or tuple(range(torch.cuda.device_count()))
        group = slot % max(1, len(gpus) // self.devices)
        return replace(self, gpus=gpus[group * self.devices : (group + 1) * self.devices])


def choose_device(requested: Device) -> Device:
    """Return the device of the jobs; "auto" is CUDA if available, else the CPU."""
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    device: Device = ("cuda" if available["cuda"] else "cpu") if requested == "auto" else requested
    if not available[device]:
        raise UserError(f"--device {requested}: this machine, or this build of PyTorch, has none")
    return device


def side_by_side(num_training: int, device: str, devices: int = 1, jobs_per_gpu: int = 1) -> tuple[int, int | None]:
    """Return the number of worker processes, and of threads per computing process, for "--jobs auto".

    On a CPU that is one single-threaded process per core, because small models gain more from a second process than
    from a second thread; on GPUs `jobs_per_gpu` jobs for each group of `devices`. `num_training` counts the training
    jobs of the whole plan, cached ones included, so that all have the same number of threads. On a CPU, `devices` are
    processes.

    Raises:
        UserError: the machine has fewer devices.
    """
    if device == "cpu":
        cores = num_cores()
        if devices > cores:
            raise UserError(f"--devices {devices}: this machine has {cores} cores")
        workers = max(1, min(cores // devices, num_training))
        return workers, max(1, cores // (workers * devices))
    available = torch.cuda.device_count() if device == "cuda" else 1
    if devices > available:
        raise UserError(f"--devices {devices}: this machine has {available} of {device}")
    return max(1, min(available // devices * jobs_per_gpu, num_training)), None


def make_setting(options: Options, num_training: int, **more: Any) -> Setting:
    """Return the setting of a plan with `num_training` jobs to train; `more` are other fields of it.

    Jobs that run elsewhere have no workers here (0) and one thread each on a CPU, on any machine.
    """
    if options.jobs_per_gpu > 1 and options.device != "cuda":
        raise UserError("--jobs-per-gpu is for GPUs; on a CPU there is a job per core, see --jobs")
    if options.jobs_per_gpu > 1 and options.devices > 1:
        raise UserError("--jobs-per-gpu is for jobs that share a GPU, --devices for one that takes several")
    workers = 0
    threads = 1 if options.device == "cpu" else None
    if not options.plan_only:
        workers, threads = side_by_side(num_training, options.device, options.devices, options.jobs_per_gpu)
        if options.jobs is not None:
            # At most PyTorch's own number, which OMP_NUM_THREADS sets: threads of two jobs that wait for each other on
            # the same cores made both ten times slower.
            threads = min(torch.get_num_threads(), max(1, workers * threads // options.jobs)) if threads else None
            workers = options.jobs
    return Setting(
        runs=options.runs.resolve(),
        data_dir=options.data_dir.resolve(),
        device=options.device,
        workers=workers,
        isolated=options.jobs is None and (options.device == "cuda" or any(map(is_path, options.methods.split(",")))),
        threads=threads,
        devices=options.devices,
        jobs_per_gpu=options.jobs_per_gpu,
        **more,
    )
