"""The progress of jobs on a Ray cluster; a module of its own, because the process that keeps it needs no PyTorch."""


class Progress:
    """An actor on the driver's node, which tasks write and the driver reads."""

    def __init__(self) -> None:
        self.news: dict[str, tuple[float, int]] = {}

    def put(self, job_id: str, done: float, total: int) -> None:
        """Note the epochs that a job has done, and its epochs in all."""
        self.news[job_id] = done, total

    def take(self) -> dict[str, tuple[float, int]]:
        """Return what has been noted since the last call."""
        news, self.news = self.news, {}
        return news
