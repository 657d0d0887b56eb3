"""The check that every table of messages makes."""

import pytest

from hierbench.utils.errors import UserError, as_options


def check_message(message, call, *arguments, kind=UserError):
    """Check that a call raises an error of one line with this text, or these; ^ and $ stand for its ends; return it."""
    with pytest.raises(kind) as error:
        call(*arguments)
    line, parts = f"^{as_options(error.value)}$", [message] if isinstance(message, str) else message
    assert "\n" not in line and all(part in line for part in parts), line
    return line
