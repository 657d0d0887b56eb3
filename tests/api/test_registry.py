"""How methods are found: interrupts, digests of code, and names of other places."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


CODE = "SCALE = 1.0\n\n\nclass A:\n    def f(self, x=2):\n        return x\n"


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        (CODE, CODE.replace("\n\n\n", "  # a comment\n"), True),
        (CODE, CODE.replace("A:\n", 'A:\n    """Doc."""\n\n'), True),
        ("A = '\f'  # a\nB = 1\n", "A = '\f'  # a\nB = 2\n", False),
        ("A = 1  # \x0c\nB = 1\n", "A = 1  # \x0c\nB = 2\n", False),
        ("A = 1  # \u2028 B = 1\nC = 1\n", "A = 1  # \u2028 B = 1\nC = 2\n", False),
        ("\fA = 1\n\f\nB = 1\n", "\fA = 1\n\f\nB = 2\n", False),
        ('class A(B): """Doc."""\n', 'class A(C): """Doc."""\n', False),
        ('def f(x=1): "doc"\n', 'def f(x=2): "doc"\n', False),
        ('A = """a\n\nb"""\n', 'A = """a\nb"""\n', False),
        ('A = """a \nb"""\n', 'A = """a\nb"""\n', False),
        ('A = f"""a\n\n{1}"""\n', 'A = f"""a\n{1}"""\n', False),
        ("A = 1\r\nB = 2\r\n", "A = 1\nB = 2\n", True),
    ],
)
def test_the_digest_of_code_is_that_of_its_tokens(first, second, is_same):
    assert (digest_of_code(first.encode()) == digest_of_code(second.encode())) == is_same


@given(st.lists(st.sampled_from(["\f", "\u2028", "\x1c", "\x85", " ", "#", "a", "'", "\n"]), max_size=9))
def test_a_constant_below_anything_counts(parts):
    """Below a comment and a string of any characters."""
    text = "".join(parts)
    sources = [f"# {text!s}".replace("\n", "") + f"\nA = {text!r}\nB = {number}\n" for number in (1, 2)]
    assert digest_of_code(sources[0].encode()) != digest_of_code(sources[1].encode())
