"""How methods are found: interrupts, digests of code, and names of other places."""

import pytest

from hierbench.api.registry import digest_of_code, find_method


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
