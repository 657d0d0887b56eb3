"""The code of methods by digest, without importing them or PyTorch."""

import ast
import hashlib
import io
import tokenize
from functools import lru_cache
from importlib import resources
from pathlib import Path

from hierbench.utils.files import read_bytes


@lru_cache
def installed_code(name: str) -> str | None:
    """Return the digest of the code of one of the project's own methods, None where there is none of this name."""
    if not name.isidentifier():
        return None
    file = Path(str(resources.files("hierbench.methods"))) / f"{name}.py"
    return digest_of_code(read_bytes(file)) if file.is_file() else None


@lru_cache
def digest_of_code(content: bytes) -> str:
    """Return the SHA-256 of Python source without comments, docstrings and blank lines: only its code counts."""
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
    return hashlib.sha256("\n".join(kept).encode()).hexdigest()
