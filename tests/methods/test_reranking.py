"""`nearest` and calibrated CRM against loops, and HAFrame's two variants against HAFrame with their values."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from hierbench.api.registry import find_method
from hierbench.metrics.ranked_classes import top_classes
from tests.methods.test_hie import RAGGED

K = RAGGED.num_classes


def rescored(name, probabilities):
    return find_method(name).cls(RAGGED).rescore(torch.as_tensor(probabilities))


@given(st.lists(st.lists(st.integers(0, 4), min_size=K, max_size=K).filter(any), min_size=1, max_size=5))
def test_nearest_lists_the_classes_by_their_distance_from_the_best_one(counts):
    """Ties of probabilities and of distances go to the lower index, and no probability but the largest has a say."""
    probabilities = np.array(counts, dtype=np.float64)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    distances = RAGGED.distances
    for row, ranked in zip(probabilities, top_classes(rescored("nearest", probabilities), K).tolist(), strict=True):
        best = int(row.argmax())
        assert ranked == sorted(range(K), key=lambda c, best=best: (distances[best, c], c))
        others = np.where(np.arange(K) == best, 1.0, np.random.default_rng(0).uniform(0, 0.9, K))
        assert top_classes(rescored("nearest", others[None]), K)[0].tolist() == ranked


def test_calibrated_crm_has_the_temperature_of_least_validation_loss():
    rng = np.random.default_rng(1)
    validation, test = (3 * rng.normal(size=(num, K)) for num in (300, 20))
    targets = np.array([rng.choice(K, p=np.exp(row / 2) / np.exp(row / 2).sum()) for row in validation])

    def softmax(scores):
        return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)

    def loss(temperature):
        return -np.log(softmax(validation / temperature)[np.arange(300), targets]).mean()

    best = minimize_scalar(loss, bounds=(0.05, 20), method="bounded", options={"xatol": 1e-9}).x
    method = find_method("crm_temperature").cls(RAGGED)
    method.fit(torch.from_numpy(softmax(validation)), targets=torch.from_numpy(targets))
    assert method.temperature == pytest.approx(best, rel=1e-4) and 1.5 < best < 2.6
    expected = -softmax(test / best) @ RAGGED.distances
    np.testing.assert_allclose(method.rescore(torch.from_numpy(softmax(test))).numpy(), expected, rtol=1e-3)


@pytest.mark.parametrize(("name", "alpha"), [("haframe_paper", 0.4), ("haframe_frame", 0.0)])
def test_the_variants_are_haframe_with_their_values(name, alpha):
    variant, haframe = find_method(name).cls, find_method("haframe").cls
    features, targets = torch.randn(6, K), torch.arange(6)

    def terms(cls, params):
        torch.manual_seed(0)  # the frame is turned at random
        method = cls(RAGGED, K, params)
        return {key: value.item() for key, value in method.loss(method(features), targets).items()}

    assert terms(variant, variant.Params()) == terms(haframe, haframe.Params(alpha=alpha, gamma=2.0, s_min="paper"))
    assert terms(variant, variant.Params()) != terms(haframe, haframe.Params())
    assert all(not variant.Params.model_fields[key].json_schema_extra["grid"] for key in ("alpha", "gamma"))
