"""Records of runs and prepared data that are damaged or made to harm: one line, never a traceback, never a wait."""

import contextlib
import json
import os
import shutil

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hierbench.data import prepared as data
from hierbench.runs.integrity import fingerprints
from hierbench.runs.record_reader import read_record
from hierbench.runs.store import Run, Store
from hierbench.training.checkpoint import load_checkpoint
from hierbench.utils.errors import UserError
from hierbench.utils.files import MAX_JSON_DEPTH, file_digest, read_json, read_json_object, read_text, write_text
from tests.support.crafted import Marker
from tests.support.run_files import history_of
from tests.support.tamperings import edit, reseal

FUZZED = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.fixture
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@given(st.integers(0, 7), st.binary(max_size=60))
@FUZZED
def test_any_bytes_in_any_record(targets, tmp_path_factory, which, content):
    targets.records(bytes([which]) + content, tmp_path_factory.mktemp("records"))


@given(st.integers(0, 5), st.lists(st.integers(0, 9), min_size=1, max_size=3), JSON)
@FUZZED
def test_records_with_one_value_replaced(targets, tmp_path_factory, which, path, value):
    content = bytes([which, 0, *path, 250]) + json.dumps(value).encode()
    targets.records(content, tmp_path_factory.mktemp("records"))


@given(JSON)
@FUZZED
def test_json_is_finite_and_shallow(folder, content):
    text = json.dumps(content)
    (folder / "x.json").write_text(text)
    try:
        read_back = read_json(folder / "x.json")
    except ValueError:
        assert "NaN" in text or "Infinity" in text or any(abs(n) >= 1 << 63 for n in numbers(content))
        return
    assert read_back == content
    if not isinstance(content, dict):
        with pytest.raises(ValueError, match="not a JSON object"):
            read_json_object(folder / "x.json")


def numbers(content):
    if isinstance(content, dict | list):
        return [n for value in (content.values() if isinstance(content, dict) else content) for n in numbers(value)]
    return [content] if isinstance(content, int) else []


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "[" * (MAX_JSON_DEPTH + 1) + "]" * (MAX_JSON_DEPTH + 1),
        "9" * 5000,
        "1e999",
        "-Infinity",
        "NaN",
        '{"a":' * 40_000,
        '{"a": {"b": 1, "c": 2, "b": 1}}',
        "\xff",
        "\0",
        "",
    ],
    ids=range(11),
)
def test_json_that_no_record_holds(tmp_path, text):
    (tmp_path / "x.json").write_bytes(text.encode("latin1"))
    with pytest.raises(ValueError):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize("read", [read_json, read_text, file_digest])
@pytest.mark.parametrize("name", ["pipe", "folder", "dangling", "loop", "/dev/zero"])
def test_files_that_are_not_records(tmp_path, read, name):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError):
        read(tmp_path / name)


def test_half_a_surrogate_pair_is_a_question_mark(tmp_path):
    """The property test's: a method of such a name, of which pandas made no table."""
    (tmp_path / "x.json").write_text(r'{"a\ud800": ["\ud83d\ude00", "\uDFFF"]}')
    assert read_json(tmp_path / "x.json") == {"a?": ["\U0001f600", "?"]}
    write_text(tmp_path / "x", "a\ud800é")
    assert read_text(tmp_path / "x") == "a?é"


@pytest.mark.parametrize("job_id", ["..", ".", "", "../other", "/etc", "a\0"])
def test_an_id_that_leads_elsewhere(tmp_path, job_id):
    with pytest.raises(UserError, match="not the id of"):
        Store(tmp_path).run(job_id)


@pytest.mark.parametrize(
    "text", ["epoch\n1,2\n", "epoch,a\n1\n", "epoch\nx\n", 'a\n"' + "1" * 140_000, "\xff"], ids=range(5)
)
def test_a_damaged_history(tmp_path, text):
    (tmp_path / "history.csv").write_bytes(text.encode("latin1"))
    with pytest.raises(UserError, match=r"history\.csv is damaged"):
        history_of(Run(tmp_path))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("test__top1", "<b>"),
        ("test__top1", True),
        ("test__top1", None),
        ("test__hierdist@1", [1.0]),
        ("test", {}),
        ("test", 3),
        ("val", {"top1": "x"}),
        ("title", 3),
        ("intervals", {"top1": "q"}),
    ],
)
def test_a_result_that_is_not_a_number(targets, tmp_path, key, value):
    """A claimed run may say anything, and no predictions contradict it."""
    spec = next(targets.PUBLISHED_RECORDS.glob("*/history.csv")).parent
    run = Run(shutil.copytree(spec, tmp_path / spec.name))
    assert not read_record(run.folder).findings
    edit(run, "metrics.json", **{key: value})
    reseal(run)
    (finding,) = read_record(run.folder).findings
    assert finding.startswith("metrics.json"), finding


@pytest.mark.parametrize("content", ["pickle", "list", "other", "pipe", "bytes"])
def test_checkpoints_and_weights_run_no_code(tmp_path, content):
    from hierbench.models.weights import read_tensors

    file = tmp_path / "checkpoint.pt"
    if content == "pipe":
        os.mkfifo(file)
    elif content == "bytes":
        file.write_bytes(b"PK\3\4" + b"\0" * 100)
    else:
        contents = {"pickle": {"model": Marker(str(tmp_path / "harm"))}, "list": [1], "other": {"x": torch.zeros(1)}}
        torch.save(contents[content], file)
    assert load_checkpoint(file) is None
    if content != "other":
        with pytest.raises(UserError):
            read_tensors(file)
    assert not (tmp_path / "harm").exists()


@given(path=st.lists(st.integers(0, 9), min_size=1, max_size=4), value=JSON)
@FUZZED
def test_a_prepared_dataset_with_one_value_replaced(targets, data_dir, tmp_path_factory, path, value):
    """Either it is damaged, or all that is asked of it later can be answered."""
    folder = tmp_path_factory.mktemp("data")
    target = folder / "prepared/shapes"
    target.mkdir(parents=True)
    for file in (data_dir / "prepared/shapes").iterdir():
        (target / file.name).symlink_to(file)
    meta = json.loads((target / "meta.json").read_text())
    (target / "meta.json").unlink()
    changed = targets.with_one_value_changed(meta, bytes([*path, 250]) + json.dumps(value).encode())
    (target / "meta.json").write_text(json.dumps(changed))
    with contextlib.suppress(UserError):
        dataset = data.find("shapes", folder)
        assert dataset.hierarchy("depth").num_classes == 48
        f"{dataset.digest[:12]}{dataset.size('test'):,}{dataset.meta['remark']}"


# Commands


@pytest.fixture
def work(tmp_path, targets):
    for history in sorted(targets.PUBLISHED_RECORDS.glob("*/history.csv"))[:3]:
        shutil.copytree(history.parent, tmp_path / "runs" / history.parent.name)
    return tmp_path


LEADERBOARD = ("leaderboard", "--dataset", "grocery-finetuned")


def test_an_error_of_a_million_characters_is_cut_and_moves_no_cursor(cli, work):
    file = sorted((work / "runs").iterdir())[0] / "metrics.json"
    odd = work / "runs" / ("\x1b[31m" + "x" * 200)
    file.parent.rename(odd)
    (odd / "metrics.json").write_text("{}")
    Run(odd).set_status("done", files=fingerprints(odd))
    done = cli(work, *LEADERBOARD).ok()  # what is not named after its spec is no run
    assert "\x1b" not in done.said and "is rejected and not counted: its folder is not named" in done.err
    assert max(map(len, done.err.splitlines())) < 1000
    line = cli(work, "leaderboard", "--dataset", "y" * 1_000_000).one_line()
    assert len(line) < 1000 and "yyy…'; known: " in line


@pytest.mark.parametrize("name", ["meta.json", "test-labels.npy", "test-images.npy"])
@pytest.mark.parametrize(
    "command", [("data", "list"), ("data", "verify", "shapes"), ("run", "--dataset", "shapes", "--dry-run")]
)
def test_prepared_data_that_are_a_pipe(cli, tmp_path, data_dir, name, command):
    shutil.copytree(data_dir / "prepared/shapes", tmp_path / "data/prepared/shapes")
    (tmp_path / "data/prepared/shapes" / name).unlink()
    os.mkfifo(tmp_path / "data/prepared/shapes" / name)
    cli(tmp_path, *command).one_line("not a regular file", codes=(1, 2), prints=command[1] == "list")


@pytest.mark.parametrize(
    "override", ["train.epochs=" + "9" * 5000, "x=" + "[" * 50_000, "train.epochs=nan", "train\ud800=1"], ids=range(4)
)
def test_an_override_of_the_command_line(cli, tmp_path, override):
    cli(tmp_path, "run", "--dataset", "shapes", "--dry-run", "--set", override).one_line(codes=(1, 2))
