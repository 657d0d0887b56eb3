"""The code of methods by digest, without importing them or PyTorch."""

import ast
import hashlib
import io
import tokenize
from functools import lru_cache
from importlib import resources
from pathlib import Path

from hierbench.utils.files import read_bytes

# Code that gives the same numbers, bit for bit on a CPU, as the code that published runs name: digest -> that one.
SAME_NUMBERS = {
    # HiE adds up a parent's classes in one order on every device; Hier-COS has no float64 in a step.
    "c41121381cdedb5ac3d45e492e786d18d16264459910eba1478a4035f2abe7cb": (
        "eb1a1b37042f69b0f8435fbb572e04ad9bd3d7856085027f4339d882b434e909"
    ),
    "61825fcbf801717ad280a2556104118e60d87bf9e0518433e7671ac63dcec761": (
        "396be8c675f84ba20a53570a19fe71539541de6d39b2539b6f9cd4a7070633da"
    ),
}


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

    Of code that `SAME_NUMBERS` has, it is that of the code before.
    """
    encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
    with io.TextIOWrapper(io.BytesIO(content), encoding) as file:
        source = file.read()
    lines = source.splitlines(keepends=True)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column] + "\n"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            start, end = node.body[0].lineno, node.body[0].end_lineno or node.body[0].lineno
            if len(node.body) == 1 or node.body[1].lineno > end:  # a docstring that shares a line with code is kept
                lines[start - 1 : end] = ["\n"] * (end - start + 1)
    kept = [line.rstrip() for line in lines if line.strip()]
    digest = hashlib.sha256("\n".join(kept).encode()).hexdigest()
    return SAME_NUMBERS.get(digest, digest)
