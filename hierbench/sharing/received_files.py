"""JSON files that came with a publication, each parsed once into a typed value; nothing in them is believed."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel

from hierbench.config.validation import validated
from hierbench.utils.errors import UserError
from hierbench.utils.files import read_json_object


class Received(BaseModel):
    """The content of a file; keys that are not declared are left out."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the content of a file; a UserError if it cannot be read or has another form."""
        try:
            content = read_json_object(path)
        except (OSError, ValueError) as error:
            raise UserError(f"{path.name} cannot be read: {error}") from None
        return validated(cls, content, path.name)

    @classmethod
    def if_readable(cls, path: Path) -> Self | None:
        """Return the content of a file, None where `read` raises."""
        try:
            return cls.read(path)
        except UserError:
            return None
