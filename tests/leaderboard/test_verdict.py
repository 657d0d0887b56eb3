"""The verdict from tables: which row, which reference, over which sets; and the order of methods."""

import json
import runpy
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hierbench.config.recipe import load_recipe
from hierbench.config.spec import json_digest
from hierbench.leaderboard import verdict_chart
from hierbench.leaderboard.paired import holm
from hierbench.leaderboard.pictures import style
from hierbench.leaderboard.protocol import PROTOCOL_OPTION, counted_ids, protocol_options, read_protocol
from hierbench.leaderboard.set_ranks import rank_content, rank_rows
from hierbench.leaderboard.set_tests import signed_rank_p
from hierbench.leaderboard.statistics import Row, Summary
from hierbench.leaderboard.verdict import VerdictRows
from hierbench.leaderboard.verdict_table import claim_sentence, verdict_table
from hierbench.runs.records import Records
from hierbench.runs.requests import with_id

PROTOCOL = read_protocol()
ROOT = Path(__file__).parents[2]
TOML = tomllib.loads((ROOT / "leaderboard/protocol.toml").read_text())
PAGES = runpy.run_path(str(ROOT / "docs/pictures/verdict.py"))
METRICS = ("top1", "mistake_severity", "hierdist@1", "hierdist@5", "hierdist@20")


def make_evidence(effects, sets=PROTOCOL.sets, noise=0.01):
    """Rows of all tables with METRICS of 50 (top1) or 2 edges, times an effect of {row: factor}, and noise by set."""
    rng = np.random.default_rng(1)

    def row(name, position):
        method, kind = name.split(":")
        factor = effects.get(name, 1.0)
        metrics = {
            metric: Summary((50.0 if metric == "top1" else 2.0 * factor) * (1 + noise * rng.normal()), 0.1)
            for metric in METRICS
        }
        return Row(kind, method, method, 5, 5, metrics, (name,), tuning={"mean": float(position)}, seeds=(0, 1))

    rows = {
        network: {
            data: {name: row(name, place) for place, name in enumerate([*kinds["trained"], *kinds["reranked"]])}
            for data in sets
        }
        for network, kinds in PROTOCOL.rows.items()
    }
    return VerdictRows(PROTOCOL, rows)


def test_a_claim_is_tested_over_the_sets_that_decide():
    evidence = make_evidence({"haframe:type-II": 0.9, "nearest:type-II": 0.7})
    results = {result.claim.id: result for result in evidence.claims}
    (part,) = results["c"].parts
    ours = [evidence.rows[n]["leaves"]["haframe:type-II"].metrics["hierdist@1"].mean for n in ("lite0", "lite2")]
    theirs = [evidence.rows[n]["leaves"]["ce:type-I"].metrics["hierdist@1"].mean for n in ("lite0", "lite2")]
    assert part.values["leaves"] == pytest.approx(
        np.mean([100 * (b - a) / b for a, b in zip(ours, theirs, strict=True)])
    )
    assert (
        part.test.p == signed_rank_p(np.array([part.values[data] for data in PROTOCOL.decide])) and results["c"].n == 11
    )
    verdicts = {name: evidence.verdict_of(result) for name, result in results.items()}
    assert (verdicts["c"], verdicts["f"], verdicts["g"]) == ("yes", "no", "open")
    assert [r.corrected for r in evidence.claims] == holm([r.p for r in evidence.claims])


def test_accuracy_has_its_margin_and_a_claim_the_larger_p():
    result = make_evidence({"haframe:type-II": 0.9}).claims[0]
    severity, accuracy = result.parts
    assert accuracy.part.margin == 0.5 and accuracy.unit == "points" and severity.unit == "% of the reference"
    assert result.p == max(severity.test.p, accuracy.test.p)
    row, reference = (
        make_evidence({}).rows["lite0"]["eth80"][n].metrics["top1"].mean for n in ("haframe:type-II", "ce:type-II")
    )
    alone = make_evidence({}).only("lite0").claims[0].parts[1]
    assert alone.values["eth80"] == pytest.approx(row - reference + 0.5)


def test_a_missing_set_leaves_a_claim_open():
    evidence = make_evidence({"haframe:type-II": 0.5}, [data for data in PROTOCOL.sets if data != "leaves"])
    result = next(result for result in evidence.claims if result.claim.id == "c")
    assert result.n == 10 and result.corrected < 0.05 and evidence.verdict_of(result) == "open"


@pytest.mark.parametrize(("network", "name"), [("lite2", "haframe:type-II"), ("lite0", "ce:type-I"), ("lite2", "")])
def test_a_row_that_a_network_lacks_leaves_a_claim_open(network, name):
    evidence = make_evidence({"haframe:type-II": 0.5})
    rows = {row: value for row, value in evidence.rows[network]["cub100"].items() if row != name}
    lacking = replace(evidence, rows=evidence.rows | {network: evidence.rows[network] | {"cub100": rows}})
    result = next(result for result in lacking.claims if result.claim.id == "c")
    assert len(result.parts[0].values) == 15 and lacking.verdict_of(result) == ("open" if name else "yes")


def test_the_row_that_validation_chooses_is_compared_with_calibrated_crm():
    evidence = make_evidence({"flamingo:type-II": 0.5})
    claim = next(claim for claim in PROTOCOL.claims if claim.id == "j")
    first = min(claim.best, key=lambda name: evidence.rows["lite0"]["cards"][name].tuning["mean"])
    assert evidence.best_row(claim, "cards") == first == "flamingo:type-II"
    assert next(r for r in evidence.claims if r.claim.id == "j").parts[0].values["cards"] > 40
    untuned = {**evidence.rows["lite0"]["cards"], first: replace(evidence.rows["lite0"]["cards"][first], tuning=None)}
    rows = {**evidence.rows, "lite0": {**evidence.rows["lite0"], "cards": untuned}}
    assert replace(evidence, rows=rows).best_row(claim, "cards") == ""


def test_json_has_what_the_protocol_promises():
    content = make_evidence({"haframe:type-II": 0.9}).content()
    assert [entry["id"] for entry in content["verdict"]] == list("abcdefghij")
    assert set(content["verdict"][0]) == {"id", "claim", "parts", "p", "corrected", "verdict", "n", "p_all"}
    part = content["verdict"][0]["parts"][0]
    assert set(part) >= {"metric", "unit", "margin", "values", "effect", "low", "high", "p", "p_flip"}
    assert set(part["values"]) == set(PROTOCOL.sets) and len(content["sets"]["decide"]) == 11
    names = [check["check"] for check in content["checks"]]
    assert names[:4] == ["edges in place of per cent", "lite0 alone", "lite2 alone", "without tiny-imagenet and cub100"]
    assert sum(name.startswith("without ") for name in names) == 1 + 11  # some claim holds
    json.dumps(content, allow_nan=False)


def test_sentences_say_the_difference_of_the_row():
    evidence = make_evidence({"haframe:type-II": 0.9}, noise=1e-6)
    sentence = claim_sentence(evidence.claims[2], evidence)
    assert sentence.startswith("(c) yes: ") and "HierDist@1 -10.0 [-10.0, -10.0] %" in sentence
    assert len(verdict_table(evidence).rows) == 10


def test_the_order_of_methods():
    effects = {"hxe:type-II": 0.5, "haframe:type-II": 0.9}
    order = rank_rows(make_evidence(effects), "hierdist@1")
    assert [row.name for row in order.rows[:2]] == ["hxe:type-II", "haframe:type-II"] and order.n == 15
    assert order.rows[0].mean_rank == 1.0 and ("hxe:type-II", "haframe:type-II") not in order.undecided
    groups = PAGES["undecided_groups"](order)
    assert all(first < last for first, last in groups) and (0, 1) not in groups
    assert set(rank_content(make_evidence({}))) == {"hierdist@1", "mistake_severity", "top1"}
    assert rank_rows(make_evidence({}, sets=()), "top1").rows == []


def test_the_pictures_are_drawn(tmp_path):
    evidence = make_evidence({"haframe:type-II": 0.9})
    with style.house_style():
        figure = verdict_chart.draw(evidence)
        texts = [text.get_text() for axes in figure.axes for text in axes.texts]
        style.write_figure(figure, tmp_path / "verdict.svg")
        style.write_figure(PAGES["draw_order"](rank_rows(evidence, "top1"), "top1"), tmp_path / "ranks.svg")
    verdicts = [f"{evidence.verdict_of(result)} (11 sets)" for result in evidence.claims]
    assert " of 10 claims hold on" in figure.get_suptitle()
    assert "; 10 wait for runs" in verdict_chart.draw(make_evidence({}, PROTOCOL.sets[1:])).get_suptitle()
    decided = make_evidence({}, PROTOCOL.decide)  # open, whatever the other sets say
    assert all(map(decided.is_settled, decided.claims)) and "runs" not in verdict_chart.draw(decided).get_suptitle()
    holding = make_evidence({"haframe:type-II": 0.9}, PROTOCOL.decide)
    assert not holding.is_settled(holding.claims[2]) and holding.verdict_of(holding.claims[2]) == "open"
    assert "yes (11 sets)" in verdicts and [text for text in texts if text.endswith("sets)")] == verdicts


def test_only_runs_under_the_protocol_count():
    ids = ["a" * 64, "b" * 64]
    under, other = (
        with_id(kind="comparison", dataset="leaves", options=options, ids=(run_id,))
        for options, run_id in zip((protocol_options("leaves"), {}), ids, strict=True)
    )
    assert counted_ids(Records(Path(), {}, requests=(under, other))) == {ids[0]}
    assert protocol_options("photos") == {} and protocol_options("leaves")[PROTOCOL_OPTION] == PROTOCOL.digest
    content = {name: value for name, value in TOML.items() if name != "changes"}
    assert json_digest(content) == PROTOCOL.digest in PROTOCOL.accepted


@pytest.mark.parametrize("name", [name for names in PROTOCOL.tables.values() for name in names])
def test_recipes_are_as_the_protocol_has_them(name):
    recipe = load_recipe(name)
    training, search = TOML["training"], TOML["search"]
    assert (recipe.train.steps, recipe.train.batch_size, recipe.seeds) == (training["steps"], training["batch_size"], 5)
    assert recipe.evaluation.tested == training["tested"] and recipe.model.frozen
    assert f"timm:tf_efficientnet_{PROTOCOL.network_of(name)}" == recipe.model.backbone
    tune = recipe.tune
    assert (tune.sampler, tune.trials, tune.runs) == (search["sampler"], search["trials"], 1)
    assert (tune.finalists, tune.finalist_runs) == (search["finalists"], search["finalist_runs"])
    assert {key: list(values) for key, values in tune.grid["all"].items()} == search["ranges"]
    assert recipe.data.dataset in PROTOCOL.sets and recipe.methods["haframe"] == {"alpha": 0.4, "gamma": 2.0}


def test_claims_on_rules_are_a_family_of_their_own():
    rng = np.random.default_rng(2)
    parts = [part for claim in PROTOCOL.answer_claims for part in claim.parts]
    labels = sorted({label for part in parts for label in (part.row, part.reference)})
    better = {"darts@0.9": 5.0, "speciesnet_rollup": -5.0}

    def values(label):
        return {metric: 50.0 + better.get(label, 0.0) + rng.normal(0, 0.1) for metric in ("coverage", "hf")}

    answers = {data: {label: values(label) for label in labels} for data in PROTOCOL.sets}
    evidence = replace(make_evidence({}), answers=answers | {"leaves": {}})
    assert {evidence.verdict_of(result) for result in evidence.answer_claims} == {
        "open"
    }  # a set that decides is missing
    evidence = replace(make_evidence({}), answers=answers)
    assert [evidence.verdict_of(result) for result in evidence.answer_claims] == ["yes", "open", "no"]
    k = evidence.answer_claims[0]
    leaves = answers["leaves"]
    expected = leaves["darts@0.9"]["coverage"] - leaves["confidence_threshold@0.9"]["coverage"]
    assert k.parts[0].values["leaves"] == expected and k.parts[0].unit == "points"
    assert [r.corrected for r in evidence.answer_claims] == holm([r.p for r in evidence.answer_claims])
    assert [claim["id"] for claim in evidence.content()["answers"]] == ["k", "l", "m"]
    assert len(evidence.content()["verdict"]) == 10
    assert claim_sentence(k, evidence).startswith("(k) yes: DARTS tells more than a fitted threshold: Coverage +5.0 [")
