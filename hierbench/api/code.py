"""The code of methods by digest, without importing them or PyTorch."""

import ast
import hashlib
import io
import tokenize
from functools import lru_cache
from importlib import resources
from pathlib import Path

from hierbench.utils.files import read_bytes

# {method: {version: digest of its code when its first runs were published}}. Their ids have the digest, so that all ids
# of a version that stands here have it, whatever its file is now. Frozen: later versions need none.
FROZEN_CODE = {
    "_coarse_ce": {"1": "7fb36e249f865abd93f37f50c5049e0d0d5acbfee3fe76510d6fb92a4a64f1cd"},
    "barz_denzler": {"1": "c86bb6b1772cc772f2b729d1343a29ee53debe28b565419a2429222543257c49"},
    "ce": {"1": "0c6c9cf909ddf29909163da9cf1d7c47d929338ca53d966a58233256b4b189d1"},
    "conditional_softmax": {"1": "3e1d84ae57342a0b0bfe497c3932e5573fd3136f05bc36386774e622686ba4f3"},
    "crm": {"1": "f6343cb607d8990a3b22a78bc6f81e26702e6b09537d35cc7786a2318c22aefa"},
    "descendant_softmax": {"1": "e72e7fae130b359877f5361789ee4a016834eb636c626c6901d431fa4d6794be"},
    "etf": {"1": "809d32ed11a41ca356123deb66d0ee5dc533edcd9f580bca05847c44d36a4468"},
    "flamingo": {"1": "9f0d593d88a4d929eb2d3e822e5a9e613ed0e10d880b82126c585506581a5e35"},
    "hafeature": {"1": "13b227940ab97829ccbc96ac5c2a599eb0777b99b4d2f8faf84b5507dfe53e11"},
    "haframe": {"1": "d8b456761d2fd6255ae6096549135ef5ef87774521107fb2c2d68220f31f32e0"},
    "hie": {"1": "eb1a1b37042f69b0f8435fbb572e04ad9bd3d7856085027f4339d882b434e909"},
    "hiercos": {"1": "396be8c675f84ba20a53570a19fe71539541de6d39b2539b6f9cd4a7070633da"},
    "hxe": {"1": "f7a5f2781d9400d5467eeb58fe78f298fe66b5cc0a41b169dc8ce8401dc07a63"},
    "multilevel_ce": {"1": "c49389baec87134d36211df23d9280fc20237b537cfc0351f5b910ff136eb9b3"},
    "soft_labels": {"1": "2421b6270f8c21eed313d7dd06e369d7cee22225fc4da2030fe0db917c884143"},
}


def identity_code(name: str, version: str) -> str:
    """Return what the id of a run has as the code of one of the project's own methods, "" where it has none.

    The method is its name and version: `tests/golden/test_methods.py` fails when its numbers move and these stay.
    """
    return FROZEN_CODE.get(name, {}).get(version, "")


@lru_cache
def installed_code(name: str) -> str | None:
    """Return the digest of the code of one of the project's own methods, or None for an unknown name."""
    if not name.isidentifier():
        return None
    file = Path(str(resources.files("hierbench.methods"))) / f"{name}.py"
    return digest_of_code(read_bytes(file)) if file.is_file() else None


@lru_cache
def digest_of_code(content: bytes) -> str:
    """Return the SHA-256 of Python source without comments, docstrings and blank lines: only its code counts.

    Lines are Python's own: they end at a newline, not at a form feed. What is inside a string is kept as it is.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    with io.TextIOWrapper(io.BytesIO(content), encoding) as file:
        source = file.read()
    lines = source.split("\n")
    inside = set[int]()  # rows that a string goes on after
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column]
        elif tokenize.tok_name[token.type] in ("STRING", "FSTRING_MIDDLE", "TSTRING_MIDDLE"):
            inside.update(range(token.start[0], token.end[0]))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            text = node.body[0]
            end = text.end_lineno or text.lineno
            before = lines[text.lineno - 1].encode()[: text.col_offset]
            after = lines[end - 1].encode()[text.end_col_offset :]
            if not before.strip() and not after.strip():  # a docstring that shares a line with code is kept
                lines[text.lineno - 1 : end] = [""] * (end - text.lineno + 1)
                inside -= {*range(text.lineno, end)}
    kept = [
        line if row in inside else line.rstrip()
        for row, line in enumerate(lines, start=1)
        if line.strip() or row in inside or row - 1 in inside
    ]
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()
