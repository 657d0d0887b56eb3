"""Changes of right inputs: one value of JSON for an odd one, or some bytes of anything."""

import contextlib
import json

ODD = [
    None,
    True,
    -1,
    0,
    0.5,
    1 << 62,
    1 << 80,
    1e308,
    float("nan"),
    "",
    "x",
    "../../x",
    "\ud800",
    [],
    {},
    [[]],
    {"a": 1},
]


def with_one_value_changed(content, choices):
    """Return JSON in which the value that the bytes lead to is another, or gone."""
    if not choices or not isinstance(content, dict | list) or not content or choices[0] >= 250:
        rest = choices[1:]
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(rest)
        return ODD[rest[0] % len(ODD)] if rest else rest.decode("latin1")
    keys = list(content) if isinstance(content, dict) else list(range(len(content)))
    key = keys[choices[0] % len(keys)]
    if choices[1:2] == b"\xff":
        del content[key]
    else:
        content[key] = with_one_value_changed(content[key], choices[1:])
    return content


PIECES = (
    b"",
    b"\0",
    b"\xff",
    b"\n",
    b",",
    b'"',
    b"[",
    b"{",
    b"-1",
    b"nan",
    b"1e999",
    b"9" * 5000,
    b"\xed\xa0\x80",
    b"../",
)


def changed(content, random):
    """Return bytes with one to six changes, as a random number generator chooses them; the first is seldom changed.

    A change is another byte, a piece put in, a piece taken out, or one copied to another place; some are cut short.
    """
    result = bytearray(content)
    for _ in range(random.randint(1, 6)):
        first = 0 if random.random() < 0.1 else 1
        place = random.randint(first, max(first, len(result) - 1))
        kind = random.randrange(4)
        if kind == 0:
            result[place : place + 1] = bytes([random.randrange(256)])
        elif kind == 1:
            result[place:place] = random.choice(PIECES)
        elif kind == 2:
            del result[place : place + random.randint(1, 16)]
        else:
            start = random.randrange(len(result) + 1)
            result[place:place] = result[start : start + random.randint(1, 64)]
    return bytes(result[: random.randint(1, len(result) + 1)] if random.random() < 0.1 else result)
