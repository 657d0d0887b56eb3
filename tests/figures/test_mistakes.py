import base64
import io
import json

import numpy as np
import pytest
from PIL import Image

from hierbench.figures.mistakes.mistakes_page import (
    THUMBNAIL,
    page_data,
    read_names,
    render,
    thumbnail,
)
from hierbench.figures.mistakes.pair import choose, read_pair
from hierbench.leaderboard.board import Board
from hierbench.leaderboard.selection import named_run
from hierbench.runs.record_reader import read_records
from hierbench.runs.store import Store
from hierbench.utils.errors import UserError
from tests.support import mistake_runs
from tests.support.tamperings import respecify

ROBIN, BOLD, COD, SCRIPT, OAK, FERN = range(6)


def one_hot(classes):
    return np.eye(6, dtype=np.float32)[classes] * 4


@pytest.fixture
def work(tmp_path):
    """One image of each class and two runs: A is ce on type-I, B haframe on type-II."""
    prepared = mistake_runs.prepare(tmp_path / "data", per_class=1)
    store = Store(tmp_path / "runs")
    _, labels = prepared.arrays("test")
    answers = {
        "ce:type-I": {ROBIN: ROBIN, BOLD: ROBIN, COD: ROBIN, SCRIPT: OAK, OAK: FERN, FERN: OAK},
        "haframe:type-II": {ROBIN: ROBIN, BOLD: BOLD, COD: SCRIPT, SCRIPT: FERN, OAK: ROBIN, FERN: FERN},
    }
    for name, answer in answers.items():
        scores = one_hot([answer[label] for label in labels])
        mistake_runs.store_run(store, prepared, *name.split(":"), scores, labels)
    return tmp_path


def pair_of(work, a="ce", b="haframe", **options):
    board = Board.of("shapes", read_records(work / "runs"))
    return read_pair(named_run(a, board), named_run(b, board), work / "data", board.records, **options)


def mistakes(cli, work, *arguments):
    return cli(work, "mistakes", "--dataset", "shapes", "--data-dir", work / "data", *arguments)


def test_heights_by_hand(work):
    """Bird and fish are nodes of height 1, animal and plant of height 2 (plant, tree, oak), the root of height 3."""
    pair = pair_of(work)
    by_class = {int(label): n for n, label in enumerate(pair.targets)}
    expected = {ROBIN: (0, 0, 0), BOLD: (1, 0, 1), COD: (2, 1, 2), SCRIPT: (3, 3, 2), OAK: (2, 3, 3), FERN: (2, 0, 2)}
    for label, (a, b, between) in expected.items():
        n = by_class[label]
        assert (pair.heights[0, n], pair.heights[1, n], pair.between[n]) == (a, b, between), label
    assert pair.counts().tolist() == [[1, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 1], [0, 0, 0, 1]]
    assert [side.metrics["top1"] for side in pair.sides] == pytest.approx([100 / 6, 50])
    assert [side.metrics["mistake_severity"] for side in pair.sides] == pytest.approx([10 / 5, 7 / 3])
    assert pair.confidence == pytest.approx(np.exp(4) / (np.exp(4) + 5))


def test_distance_by_depth(tmp_path):
    """Moss and fern hang below a node of height 1 whose depth is 1 in a tree of height 3."""
    paths = [["plant", "moss"], ["plant", "fern"], ["animal", "bird", "robin"], ["animal", "bird", "wren"]]
    for distance, between in (("height", 1), ("depth", 2)):
        work = tmp_path / distance
        prepared = mistake_runs.prepare(work / "data", paths, per_class=1)
        _, labels = prepared.arrays("test")
        for seed, scores in enumerate((np.eye(4)[labels], np.eye(4)[(labels ^ 1)])):
            overrides = [f"distance={distance}"]
            mistake_runs.store_run(Store(work / "runs"), prepared, "ce", "type-I", scores, labels, seed, overrides)
        pair = pair_of(work, "ce", "ce:type-I:1")
        assert pair.heights.tolist() == [[0] * 4, [between if label < 2 else 1 for label in labels]]
        page = render(pair, np.arange(4))
        assert ("minus the depth" in page) == (distance == "depth")
        assert (">Mistakes by LCA height</h2>" in page) == (distance == "height")


def test_a_re_ranked_run_has_the_confidence_of_its_base(tmp_path):
    prepared = mistake_runs.prepare(tmp_path / "data", per_class=1)
    _, labels = prepared.arrays("test")
    store = Store(tmp_path / "runs")
    mistake_runs.store_run(store, prepared, "crm", "type-I", one_hot([FERN] * 6), labels)
    (base,) = named_run("crm", Board.of("shapes", read_records(store.root))).bases
    store.run(base).write_predictions(np.log(np.tile([0.3, 0.1, 0.1, 0.1, 0.25, 0.15], (6, 1))), labels)
    mistake_runs.seal(store.run(base))
    pair = pair_of(tmp_path, "ce", "crm")
    assert pair.predicted.tolist() == [[ROBIN] * 6, [FERN] * 6]
    assert pair.confidence == pytest.approx(np.repeat([[0.3], [0.15]], 6, axis=1))
    assert "Re-ranks run" in render(pair, np.arange(6))


def test_images_match_where_the_last_batch_is_left_out(tmp_path):
    """300 test images: those of the last 44 in order of class, all of the last one, are not evaluated."""
    prepared = mistake_runs.prepare(tmp_path / "data", per_class=50)
    images, labels = prepared.arrays("test")
    kept = np.sort(np.argsort(labels, kind="stable")[:256])
    for seed in (0, 1):
        scores = mistake_runs.random_scores(labels[kept], 6, seed)
        overrides = ["evaluation.drop_last=true"]
        mistake_runs.store_run(
            Store(tmp_path / "runs"), prepared, "ce", "type-I", scores, labels[kept], seed, overrides
        )
    pair = pair_of(tmp_path, "ce", "ce:type-I:1")
    assert pair.rows.tolist() == kept.tolist()
    assert (pair.targets == FERN).sum() == 6
    examples = page_data(pair, choose(pair.heights, pair.between, pair.confidence, 20), {})["examples"]
    assert len(examples) == 20
    for example in examples:
        assert labels[example["row"]] == example["target"]
        assert np.array_equal(decoded(example["image"]), images[example["row"]])


def decoded(url):
    content = base64.b64decode(url.removeprefix("data:image/webp;base64,"))
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).transpose(2, 0, 1)


@pytest.mark.parametrize(
    ("shape", "expected"), [((224, 224), (160, 160)), ((64, 48), (64, 48)), ((320, 80), (160, 40))]
)
def test_thumbnails(shape, expected):
    ramp = np.add.outer(np.arange(shape[0]), np.arange(shape[1])) * 255 // sum(shape)
    image = decoded(thumbnail(np.stack([ramp, 255 - ramp, ramp]).astype(np.uint8)))
    assert image.shape == (3, *expected) and max(expected) <= THUMBNAIL
    assert abs(int(image[0, -1, -1]) - int(ramp[-1, -1])) < 12 and abs(int(image[1, 0, 0]) - 255) < 12


def test_choice_begins_with_the_largest_disagreement():
    heights = np.array([[0, 1, 3, 2, 0, 2], [0, 3, 0, 2, 1, 2]])
    between = np.array([0, 3, 3, 2, 1, 0])
    confidence = np.full((2, 6), 0.5)
    assert choose(heights, between, confidence, 10).tolist() == [2, 1, 4, 3, 5]
    confidence[1, 5] = 0.9
    assert choose(heights, between * 0, confidence, 10).tolist() == [2, 1, 4, 5, 3]


def test_choice_of_a_part_has_each_height_of_each_run():
    generator = np.random.default_rng(0)
    heights = generator.choice(8, p=[0.6, 0.02, 0.02, 0.03, 0.03, 0.1, 0.1, 0.1], size=(2, 5000))
    between, confidence = generator.integers(0, 8, 5000), generator.random((2, 5000))
    order = choose(heights, between, confidence, 5000)
    for limit in (14, 15, 40, 400, 1000):
        chosen = choose(heights, between, confidence, limit)
        assert len(chosen) == len(set(chosen.tolist())) == limit
        assert (heights[:, chosen] > 0).any(axis=0).all()
        assert all(set(heights[side, chosen].tolist()) >= set(range(1, 8)) for side in (0, 1))
        gaps = np.abs(heights[0] - heights[1])[chosen]
        assert (np.diff(gaps) <= 0).all()
        places = [order.tolist().index(n) for n in chosen]
        assert places == sorted(places)
        if limit >= 40:  # half of the places are free for them
            assert set(places) >= set(range(limit // 3))
    every = {(a, b) for a, b in heights.T.tolist() if a or b}
    assert len(every) > 50
    for limit, complete in ((60, False), (160, True), (400, True)):
        chosen = choose(heights, between, confidence, limit)
        assert ({(a, b) for a, b in heights[:, chosen].T.tolist()} == every) == complete


def test_a_page_of_the_statistics_alone(cli, work, tmp_path):
    full, alone = tmp_path / "whole.html", tmp_path / "alone.html"
    command = ["mistakes", "--dataset", "shapes", "ce", "haframe", "--output"]
    cli(work, *command, full).ok()
    cli(work, *command, alone, "--limit", "0").ok()
    full, alone = full.read_text(), alone.read_text()
    assert "data:image/webp" in full and "data:image/webp" not in alone
    assert '"images" hidden>' in alone and '"images" hidden>' not in full
    counts = full.partition('id="counts"')[2].partition("</table>")[0]
    assert counts and counts == alone.partition('id="counts"')[2].partition("</table>")[0]


def test_no_mistakes_at_all(cli, work):
    prepared = pair_of(work).prepared
    _, labels = prepared.arrays("test")
    for seed in (1, 2):
        mistake_runs.store_run(Store(work / "runs"), prepared, "ce", "type-I", one_hot(labels), labels, seed)
    code, out, err = mistakes(cli, work, "--runs", work / "runs", "ce:type-I:1", "ce:type-I:2")
    assert code == 0 and "All 0 test images" in err and "wrote" in out
    page = (work / "runs/mistakes-shapes.html").read_text()
    assert 'class="number">-</td>' in page


def test_names(work):
    pair, file = pair_of(work), work / "words.txt"
    file.write_text("robin\ta bird, <i>\ncod a fish\nelse\tnothing\nanimal\tbeast\noak\t\n")
    assert read_names(file, pair) == {"robin": "a bird, <i>", "cod": "a fish", "animal": "beast"}
    assert "robin a bird, \\u003ci\\u003e" in render(pair, np.arange(6), read_names(file, pair))
    file.write_text("else\tnothing\n")
    with pytest.raises(UserError, match="names no class"):
        read_names(file, pair)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="--names"):
        read_names(file, pair)
    with pytest.raises(UserError, match="No such file"):
        read_names(work / "nowhere", pair)


def test_a_run_by_method_and_by_id(work):
    store = Store(work / "runs")
    prepared = pair_of(work).prepared
    _, labels = prepared.arrays("test")
    second = mistake_runs.store_run(store, prepared, "ce", "type-II", one_hot(labels), labels)
    other = mistake_runs.store_run(store, prepared, "ce", "type-II", one_hot(labels), labels, seed=3)

    def label(name):
        return named_run(name, Board.of("shapes", read_records(store.root))).label

    assert label("ce") == label("ce:type-I") == label("ce:type-I:0") == "ce type-I seed 0"
    assert label("ce:type-II") == label(second[:8]) == "ce type-II seed 0"
    assert label("haframe") == "haframe type-II seed 0"
    assert label("ce:type-II:3") == label(other) == "ce type-II seed 3"
    mistake_runs.store_run(
        store, prepared, "haframe", "type-II", one_hot(labels), labels, 0, ["methods.haframe.gamma=9"]
    )
    with pytest.raises(UserError, match=r"2 runs: haframe type-II seed 0 \(\w{12}, alpha=.*gamma=9.*the id of one"):
        label("haframe")


def refused(cli, work, names, problem):
    before = sorted(work.rglob("*"))
    code, out, err = mistakes(cli, work, "--runs", work / "runs", *names)
    assert code == 2 and not out and problem in err
    assert len(err.splitlines()) == 1 and err.startswith("hierbench: error: ")
    assert sorted(work.rglob("*")) == before


def run_of(work, method):
    store = Store(work / "runs")
    return store.run(named_run(method, Board.of("shapes", read_records(store.root))).id)


def with_another_digest(work):
    meta = work / "data/prepared/shapes/meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"digest": "0123456789abcdef"}))


DAMAGES = [
    (lambda work: run_of(work, "haframe").set_status("failed"), "haframe type-II seed 0) is not finished: failed"),
    (lambda work: (run_of(work, "haframe").folder / "predictions.npz").unlink(), "cannot be read: [Errno 2]"),
    (
        lambda work: (work / "data/prepared/shapes").rename(work / "data/prepared/elsewhere"),
        "the images of shapes are not prepared in",
    ),
    (with_another_digest, "is not the data of the runs: its digest is 0123456789ab, theirs is"),
]


@pytest.mark.parametrize(("damage", "problem"), DAMAGES, ids=[problem[:40] for _, problem in DAMAGES])
def test_missing_or_damaged_files_are_one_line(cli, work, damage, problem):
    damage(work)
    refused(cli, work, ["ce", "haframe"], problem)


def respecified(run, **changes):
    """Change the spec of a run, name its folder after it, and seal it; return its id."""
    run = respecify(run, **changes)
    mistake_runs.seal(run)
    return run.folder.name


def test_runs_that_cannot_be_compared(cli, work):
    prepared = pair_of(work).prepared
    _, labels = prepared.arrays("test")
    store = Store(work / "runs")

    def other(*overrides, **recipe):
        return mistake_runs.store_run(store, prepared, "ce", "type-I", one_hot(labels), labels, 0, overrides, **recipe)

    a = run_of(work, "ce").folder.name
    refused(cli, work, [a, other("evaluation.drop_last=true")], "evaluation.drop_last is set in one of them")
    by_class, by_file = (other("evaluation.drop_last=true", *more) for more in ((), ("evaluation.drop_order=file",)))
    refused(cli, work, [by_class, by_file], "evaluation.drop_order is set in one of them")
    refused(cli, work, [a, other("distance=depth")], "measure two distances, height and depth")
    refused(cli, work, [a, other(protocol="authors")], "under two protocols, paper and authors")
    longer = other("train.epochs=9")  # other settings on the same data may be compared
    assert mistakes(cli, work, "--runs", work / "runs", a, longer)[0] == 0
    elsewhere = respecified(store.run(longer), dataset__digest="f" * 64)
    refused(cli, work, [a, elsewhere], "are of different data")
    refused(cli, work, [a, respecified(store.run(elsewhere), dataset__name="fgvc")[:10]], "is of fgvc, not of shapes")


def test_a_run_of_tuning_has_no_mistakes_to_show(cli, work):
    run = run_of(work, "haframe")
    metrics = run.folder / "metrics.json"
    metrics.write_text(metrics.read_text().replace('"test"', '"val"'))
    refused(cli, work, ["ce", respecified(run, split="val")[:12]], "is a tuning run, which has no test results")


def test_the_page_is_written_where_it_is_asked_for(cli, work, monkeypatch):
    code, out, err = mistakes(cli, work, "--runs", work / "runs", "ce", "haframe", "--limit", "3")
    assert code == 0 and "note: 3 of the 5 test images that A or B gets wrong" in err
    page = (work / "runs/mistakes-shapes.html").read_text()
    assert "wrote" in out and "Shapes (generated)" in page and "3 of the 5 test images" in page
    assert "alpha=0.4" in page and "protocol paper" in page and "HAFrame, type-II, seed 0" in page
    assert mistakes(cli, work, "--runs", work / "runs", "haframe", "ce", "--output", work / "page.html")[0] == 0
    assert "A</span> HAFrame" in (work / "page.html").read_text()
    monkeypatch.chdir(work)
    (work / "runs/mistakes-shapes.html").unlink()
    assert mistakes(cli, work, "--runs", "ce", "haframe")[0] == 0  # `--runs A B`, in the default folder
    assert (work / "runs/mistakes-shapes.html").exists()
