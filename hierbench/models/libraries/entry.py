"""What each library module tells of a network."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from hierbench.utils.errors import UserError

# Of ImageNet's training images, which the libraries normalise by.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Configuration:
    """The images that a library's weights were trained on.

    Attributes:
        size: (H, W).
        mean: per channel, of values from 0 to 1.
        std: per channel.
    """

    size: tuple[int, ...] = (224, 224)
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD


def unknown_network(library: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for a name that a library does not have; the nearest are suggested, as it has hundreds."""
    near = get_close_matches(name, known, n=3, cutoff=0.4)
    hint = f"; the nearest: {', '.join(f'{library}:{other}' for other in near)}" if near else ""
    return UserError(f"{library} has no network {name!r} for classification{hint}")
