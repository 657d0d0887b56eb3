"""100 of the 200 species of CUB-200-2011, those of a public part of it (see `benchmarks/hierarchies/cub100.csv`)."""

from hierbench.data.datasets import cub
from hierbench.data.source import Source, SourceRequest


def open_source(request: SourceRequest) -> Source:
    """Read the lists, of the whole dataset or of the part; other classes are left out."""
    return cub.open_source(request, "cub100")
