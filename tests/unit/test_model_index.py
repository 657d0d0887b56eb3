"""Rows as model cards state them: read back by huggingface_hub, and only what is verified."""

import sys
from dataclasses import replace

import pytest

from hierbench.config.options import Place
from hierbench.runs.store import Store
from hierbench.sharing.model_index import check_exportable
from hierbench.sharing.verification.checked import checked_board
from hierbench.utils.errors import UserError


def test_a_row_is_read_back_with_its_numbers(cli, trained, data_dir, tmp_path):
    hub = pytest.importorskip("huggingface_hub")
    asked = ("export", "ce:type-I", "--dataset", "shapes", "--runs", trained, "--data-dir", data_dir)
    cli(tmp_path, *asked, "--output", "card.md", "--name", "mine").ok()
    card = hub.ModelCard.load(tmp_path / "card.md")
    assert card.data.model_name == "mine"
    board = checked_board("shapes", Place(trained, data_dir)).board
    row = next(row for row in board.rows if (row.method, row.type) == ("ce", "type-I"))
    found = {result.metric_type: result for result in card.data.eval_results}
    assert found["accuracy"].metric_value == row.metrics["top1"].mean
    assert found["mistake_severity"].metric_value == row.metrics["mistake_severity"].mean
    assert found["hierdist@5"].metric_args["ci95"] == row.metrics["hierdist@5"].ci95
    assert all(result.metric_args["evidence"] == "recomputed" for result in found.values())
    assert {result.dataset_type for result in found.values()} == {"shapes"}
    digest = Store(trained).run(row.runs[0]).spec()["dataset"]["digest"]
    assert {result.dataset_revision for result in found.values()} == {digest}


def test_what_is_not_verified_is_refused(trained, data_dir):
    board = checked_board("shapes", Place(trained, data_dir)).board
    row = board.rows[0]
    check_exportable(row)
    for change, why in (
        ({"verdict": "claimed"}, "is claimed; only rows"),
        ({"verdict": "rejected"}, "is rejected; only rows"),
        ({"verdict": ""}, "is not verified; only rows"),
        ({"citation": {"source": "x"}}, "was printed by other authors; only rows"),
        ({"lacking": [3, 4]}, "lacks seeds 3, 4 of its table"),
    ):
        with pytest.raises(UserError, match=why):
            check_exportable(replace(row, **change))


def test_a_mistake_is_one_line(cli, trained, data_dir, tmp_path, monkeypatch):
    place = ("--dataset", "shapes", "--runs", trained, "--data-dir", data_dir)
    cli(tmp_path, "export", "cee:type-I", *place).one_line("unknown row", "did you mean 'ce:type-I'")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.delenv("UV", raising=False)
    cli(tmp_path, "export", "ce:type-I", *place).one_line("need huggingface_hub; run: pip install 'hierbench[hf]'")
