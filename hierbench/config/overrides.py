"""Changes of a recipe's content before it is validated: a section of it, and `--set KEY=VALUE`."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from hierbench.utils.errors import UserError

BARE = re.compile(r"(?!(?:true|false|inf|nan)$)[A-Za-z_][A-Za-z0-9_.:-]*")  # text that --set takes without quotes
KEY_PART = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")  # a part of a dotted key


def merged(content: dict[str, Any], changes: dict[str, Any], where: str = "") -> dict[str, Any]:
    """Return the content with the changes applied, section by section; a UserError if one of a section meets a value.

    `where` begins the error: the dotted path of the content, with a dot at the end.
    """
    result = dict(content)
    for key, value in changes.items():
        old = result.get(key, {})
        if isinstance(value, dict) and not isinstance(old, dict):
            raise UserError(f"{where}{key} is a value, and is changed as if it were a section")
        result[key] = merged(old, value, f"{where}{key}.") if isinstance(value, dict) else value
    return result


def flatten(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of nested settings and their values; an empty section is a value."""
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def apply_override(content: dict[str, Any], override: str) -> None:
    """Set a key of the content by `KEY=VALUE`, a dotted key and TOML or a bare word; a UserError if it is not that."""
    if re.search("[\ud800-\udfff]", override):
        raise UserError(f"--set {override!a} is not valid UTF-8")
    key, equals, text = override.partition("=")
    parts = [part.strip() for part in key.split(".")]
    if not equals or not all(parts):
        raise UserError(f"--set takes KEY=VALUE, as in train.epochs=3, got {override!r}")
    try:
        (value,) = tomllib.loads(f"value = {text}").values()  # a ValueError for text of several lines
    except (ValueError, RecursionError):  # not TOML, thousands of digits, or deeply nested brackets
        value = text.strip()  # a bare word needs no quotes within quotes on the command line
    for part in parts[:-1]:
        content = content.setdefault(part, {})
        if not isinstance(content, dict):
            raise UserError(f"--set {override}: {part} is a value, not a section")
    content[parts[-1]] = value


def methods_set(override: str) -> list[str]:
    """Return the methods whose hyperparameters, learning rates or grids a valid override sets."""
    content: dict[str, Any] = {}
    apply_override(content, override)
    return [*content.get("methods", {}), *content.get("tune", {}).get("grid", {})]


def format_override(key: str, value: Any) -> str:
    """Return `KEY=VALUE` that sets a key of the content to a value of JSON.

    Raises:
        UserError: no option can: a value is null, or a part of the key is not a plain name.
    """
    if value is None or not all(KEY_PART.fullmatch(part) for part in key.split(".")):
        raise UserError(f"{key!a} = {value!r} cannot be given as a setting")
    bare = isinstance(value, str) and BARE.fullmatch(value) is not None
    return f"{key}={value if bare else toml_text(value)}"


def toml_text(value: Any) -> str:
    """Return a value of JSON other than null as TOML, tables inline and unprintable characters escaped."""
    if isinstance(value, dict):
        items = ", ".join(f"{toml_text(key)} = {toml_text(item)}" for key, item in value.items())
        return f"{{ {items} }}" if items else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_text, value))}]"
    text = json.dumps(value, ensure_ascii=False)
    # TOML has no surrogate pairs.
    return "".join(char if char.isprintable() else f"\\U{ord(char):08x}" for char in text)
