import io

import hierbench.utils.console as progress
from hierbench.utils.console import Meter, duration


def test_lines_without_a_terminal(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Meter("shapes", total=100) as meter:
        for now[0], done in ((5, 0.0), (12, 0.5), (20, 5.0), (24, 10.0), (31, 20.0), (40, 100.0)):
            meter.part("ce seed 0", done, 100)
        meter.end_part("ce seed 0", 100)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "shapes: 0%, 12 s elapsed (ce seed 0)",  # starting up is not pace: no guess yet
        "shapes: 10%, 24 s elapsed, about 2 min left (ce seed 0)",
        "shapes: 100%, 40 s elapsed, finishing (ce seed 0)",  # its test, and what follows, are still to come
    ]


def test_what_a_part_had_done_before_is_no_pace(monkeypatch, capsys):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with Meter("shapes", total=200) as meter:
        for now[0], name, done in ((5, "a", 0.0), (12, "a", 0.5), (20, "b", 60.0), (24, "a", 5.0), (36, "a", 9.5)):
            meter.part(name, done, 100)
    *_, line = capsys.readouterr().err.splitlines()
    assert line == "shapes: 35%, 36 s elapsed, about 6 min left (a, b)"


def test_lines_in_a_notebook_whose_kernel_calls_itself_a_terminal(monkeypatch):
    class OutStream(io.StringIO):
        def isatty(self):
            return True

    OutStream.__module__ = "ipykernel.iostream"
    monkeypatch.setattr("sys.stderr", OutStream())
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Meter("shapes", total=1) as meter:
        meter.part("ce seed 0", 0.5, 1)
        meter.say("done")
    assert progress.sys.stderr.getvalue() == "done\n"


def test_durations():
    assert [duration(s) for s in (5, 300, 7200, 200_000)] == ["5 s", "5 min", "2.0 h", "2.3 days"]
