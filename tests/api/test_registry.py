"""How methods are found: interrupts, digests of code, and names of other places."""

import pytest

from hierbench.api.code import FROZEN_CODE, digest_of_code
from hierbench.api.registry import find_method
from hierbench.config.completion import method_folder


def test_the_users_interrupt_is_passed_on(tmp_path):
    path = tmp_path / "odd.py"
    path.write_text("raise KeyboardInterrupt", encoding="utf-8")
    with pytest.raises(KeyboardInterrupt):
        find_method(str(path))


def test_the_digest_sees_code_beside_a_docstring_and_no_docstring(tmp_path):
    path, digests = tmp_path / "m.py", []
    for text in (
        'def f(x):\n    "doc"; return x * 1\n',
        'def f(x):\n    "doc"; return x * 2\n',
        'def f(x):\n    "one"\n    return x\n',
        'def f(x):\n    "other"\n\n    return x  # comment\n',
        '\ufeffdef f(x):\n    "other"\n    return x\n',
    ):
        path.write_text(text, encoding="utf-8")
        digests.append(digest_of_code(path.read_bytes()))
    assert digests[0] != digests[1]
    assert digests[2] == digests[3] == digests[4]


def test_our_method_is_its_version_and_a_copy_its_code(tmp_path, monkeypatch):
    shipped = find_method("ce")
    path = tmp_path / "ce.py"
    path.write_bytes((method_folder() / "ce.py").read_bytes() + b"\nother = 1\n")
    copy = find_method(str(path))
    assert shipped.code == FROZEN_CODE["ce"]["1"] and copy.code == copy.digest == digest_of_code(path.read_bytes())
    monkeypatch.setattr(shipped.cls, "version", "2")
    assert shipped.code == "" and find_method("ce").digest == shipped.digest
