import numpy as np
import pytest
import torch

from hierbench import Hierarchy
from hierbench.api.contract import list_checks
from hierbench.api.contract_setup import ContractError
from hierbench.api.method import Method
from hierbench.api.registry import find_all, find_method
from hierbench.hierarchy import Nodes
from hierbench.methods import flamingo
from hierbench.methods.crm import CRM
from hierbench.methods.hafeature import HAFeature
from hierbench.methods.haframe import HAFrame
from hierbench.utils.errors import UserError

PATHS = {path[-1]: tuple(path) for path in ("pta", "ptb", "puc", "qd", "qve", "qvf")}
SMALL = Hierarchy.from_paths(PATHS)
CASES = [
    pytest.param(method.cls, check, id=f"{method.name}: {check.name}")
    for method in [*find_all(), find_method("_coarse_ce")]
    for check in list_checks(method.cls)
]
CHECKS = {check.name: check.run for check in list_checks(Method)}


def close(ours, expected, tolerance):
    """Largest difference relative to the largest value."""
    ours, expected = np.asarray(ours.detach()), np.asarray(expected)
    return np.abs(ours - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize(("cls", "check"), CASES)
def test_contract(cls, check):
    check.run(cls)


@pytest.mark.parametrize("method", [method for method in find_all() if getattr(method.cls, "accepts_nodes", False)])
def test_a_class_is_a_node_without_others(method):
    """The loss of classes as nodes is that of classes; of a node above them, it is finite and lower than of a class."""
    torch.manual_seed(0)
    tree = Hierarchy.from_paths({path[-1]: tuple(path) for path in ("pta", "ptb", "puc", "qvd", "qve", "qvf")})
    made = method.cls(tree, 6, method.cls.Params())
    outputs, classes = made(torch.randn(9, 6)), torch.arange(9) % 6
    first = Nodes(tree).num_inner
    expected = sum(made.loss(outputs, classes).values())
    made.targets_are = "nodes"
    assert torch.isclose(sum(made.loss(outputs, first + classes).values()), expected, rtol=1e-5)
    above = sum(made.loss(outputs, Nodes(tree).parent[first + classes]).values())
    assert above.isfinite() and above < expected


class Wrong(Method):
    """Breaks the contract in the way that `mistake` says."""

    name = title = source = "wrong"
    mistake = ""

    class Params(Method.Params):
        """One that does nothing."""

        beta: float = 1.0

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.linear = torch.nn.Linear(num_features, hierarchy.num_classes)
        self.unused = torch.nn.Parameter(torch.zeros(1))
        self.table = torch.rand(hierarchy.num_classes)  # neither parameter nor buffer
        self.first = torch.arange(hierarchy.num_classes) == 0  # a class index in the code

    def forward(self, features):
        logits = self.linear(features)
        return {
            "table": lambda: logits + self.table,
            "batch": lambda: logits - logits.mean(dim=0),
            "order": lambda: logits + self.first,
            "shape": lambda: logits[:, 1:],
        }.get(self.mistake, lambda: logits)()

    def loss(self, outputs, targets):
        if self.mistake == "nan":
            return {"term": outputs.sum() * float("nan")}
        if self.mistake == "targets":
            return {"term": outputs.square().mean()}
        if self.mistake == "calls":
            self.calls = getattr(self, "calls", 0) + 1
        name = {
            "empty": " ",
            "sum": "loss",
            "calls": f"term {getattr(self, 'calls', 0)}",
            "size": f"term {len(targets)}",
            "classes": f"term {len(targets.unique())}",
        }.get(self.mistake, "term")
        return {name: torch.nn.functional.cross_entropy(outputs, targets) + 0 * torch.rand(())}

    def scores(self, outputs):
        return outputs


@pytest.mark.parametrize(
    ("mistake", "check", "message"),
    [
        ("shape", "shapes and finite values", "scores must be"),
        ("nan", "shapes and finite values", "is nan"),
        ("", "gradients reach every parameter", "no gradient reaches unused"),
        ("targets", "the loss depends on the targets", "does not depend"),
        ("batch", "examples do not mix", "rest of the batch"),
        ("order", "relabelling permutes the scores", "must permute"),
        ("table", "checkpoint round trip", "loaded checkpoint"),
        ("", "every hyperparameter acts", "beta does not change"),
        ("empty", "loss terms keep their names", "loss names must be non-empty strings, got ' '"),
        ("sum", "loss terms keep their names", "a loss term cannot be called 'loss'"),
        ("calls", "loss terms keep their names", "same at every call, .* first term 1, then term 2"),
        ("size", "loss terms keep their names", "same at every call, .* first term 8, then term 2"),
        ("classes", "loss terms keep their names", "same at every call, .* first term 7, then term 2"),
    ],
)
def test_the_contract_catches(mistake, check, message):
    cls = type("Case", (Wrong,), {"mistake": mistake})
    with pytest.raises((ContractError, UserError), match=message):
        CHECKS[check](cls)


class Tables(Wrong):
    """A second loss on a partner of the class, looked up in a table of class indices; and a random part."""

    persistent = True

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        partner = {"ash": "oak", "oak": "ash", "cat": "dog", "dog": "cat"}
        index = {name: i for i, name in enumerate(hierarchy.classes)}
        table = torch.tensor([index[partner.get(name, name)] for name in index])
        self.register_buffer("partner", table, persistent=self.persistent)
        self.register_buffer("noise", torch.rand(hierarchy.num_classes, num_features))

    def forward(self, features):
        return self.linear(features) + features @ self.noise.T

    def loss(self, outputs, targets):
        cross_entropy = torch.nn.functional.cross_entropy
        return {"own": cross_entropy(outputs, targets), "partner": cross_entropy(outputs, self.partner[targets])}


def test_derived_tables_of_indices_are_told_from_other_mistakes():
    """Rows can be permuted with the classes, indices within them cannot; the rest of the state stays."""
    check = CHECKS["relabelling permutes the scores"]
    with pytest.raises(ContractError) as error:
        check(Tables)
    assert str(error.value) == (
        "relabelling the classes changes the loss; the reason is the permuted partner: "
        "register derived index tables with persistent=False"
    )
    check(type("Fixed", (Tables,), {"persistent": False}))
    with pytest.raises(ContractError, match=r"must permute the scores \(one row per class, or per node .* last\)$"):
        check(type("Order", (Tables,), {"forward": lambda self, features: self.linear(features) + self.first}))


@pytest.mark.parametrize("gamma", [1, 3, 5])
def test_haframe_equals_the_oracle(shared, cifar100, gamma):
    oracle = np.load(shared / f"oracles/haframe-cifar100-g{gamma}.npz")
    method = HAFrame(cifar100, 100, HAFrame.Params(gamma=gamma, alpha=float(oracle["alpha"]), s_min="authors"))
    assert close(method.similarity(torch.arange(100)), oracle["S"], 1e-7)
    assert close(method.frame @ method.frame.T, oracle["S"], 1e-6)
    torch.set_default_dtype(torch.float64)
    try:
        method = HAFrame(cifar100, 100, method.params)
    finally:
        torch.set_default_dtype(torch.float32)
    assert close(method.similarity(torch.arange(100)), oracle["S"], 1e-14)
    assert close(method.frame @ method.frame.T, oracle["S"], 1e-14)
    method.frame = torch.from_numpy(oracle["W"])
    features = torch.from_numpy(oracle["h"]).requires_grad_()
    terms = method.loss(method(features), torch.from_numpy(oracle["y"]))
    assert terms["cross_entropy"].item() == pytest.approx(0.6 * float(oracle["ce"]), rel=1e-12)
    assert terms["cosine"].item() == pytest.approx(0.4 * float(oracle["cos"]), rel=1e-12)
    sum(terms.values()).backward()
    assert close(features.grad, oracle["grad_h"], 1e-12)


def test_hafeature_equals_the_oracle(shared, cifar100):
    oracle = np.load(shared / "oracles/hafeature-cifar100.npz")
    method = HAFeature(cifar100, oracle["x"].shape[1])
    of_levels = {key: np.concatenate([oracle[f"{key}{level}"] for level in range(1, 6)]) for key in ("W", "b", "gW")}
    weights = {"heads.weight": torch.from_numpy(of_levels["W"]), "heads.bias": torch.from_numpy(of_levels["b"])}
    method.load_state_dict(weights)
    features = torch.from_numpy(oracle["x"]).requires_grad_()
    outputs = method(features)
    terms = method.loss_in_order(outputs, torch.from_numpy(oracle["y"]), torch.arange(len(features)))
    assert close(method.scores(outputs).softmax(1), oracle["out"], 1e-5)
    assert terms["cross_entropy"].item() == pytest.approx(oracle["ce"].sum(), rel=1e-5)
    assert terms["jsd"].item() == pytest.approx(oracle["jsd"].sum(), rel=1e-5)
    assert terms["weights"].item() == pytest.approx(-oracle["weight_cos"].sum(), rel=1e-5, abs=1e-7)
    assert terms["dissimilarity"].item() == pytest.approx(oracle["dissim"].sum(), rel=1e-5)
    total = sum(terms.values())
    assert total.item() == pytest.approx(float(oracle["total"]), rel=1e-5)
    total.backward()
    assert close(features.grad, oracle["grad_x"], 1e-5)
    assert close(method.heads.weight.grad, of_levels["gW"], 1e-5)


def test_flamingo_equals_the_oracle(shared, cifar100, monkeypatch):
    oracle = np.load(shared / "oracles/flamingo-cifar100.npz")
    # The oracle's case has the remainder of 512 / 5 in the two finest levels.
    monkeypatch.setattr(flamingo, "split_sizes", lambda num_features, num_levels: [102, 102, 102, 103, 103])
    method = flamingo.Flamingo(cifar100, 512)
    state = {f"heads.{i}.weight": torch.from_numpy(oracle[f"W{i + 1}"]) for i in range(5)}
    method.load_state_dict(state | {f"heads.{i}.bias": torch.from_numpy(oracle[f"b{i + 1}"]) for i in range(5)})
    features = torch.from_numpy(oracle["x"]).requires_grad_()
    outputs = method(features)
    terms = method.loss(outputs, torch.from_numpy(oracle["y"]))
    assert close(method.scores(outputs), oracle["out"], 1e-5)
    assert [term.item() for term in terms.values()] == pytest.approx(oracle["ce_fine_to_coarse"][::-1], rel=1e-5)
    total = sum(terms.values())
    assert total.item() == pytest.approx(float(oracle["total"]), rel=1e-5)
    total.backward()
    assert close(features.grad, oracle["grad_x"], 1e-5)


def test_flamingo_split():
    assert flamingo.split_sizes(600, 7) == [85] * 6 + [90]
    with pytest.raises(ValueError, match="a feature per level"):
        flamingo.split_sizes(3, 4)


@pytest.mark.parametrize(
    "tree", [SMALL, Hierarchy.from_paths({name: (name,) for name in "abcdef"})], ids=["ragged", "flat"]
)
@pytest.mark.parametrize("targets", [[0, 1, 2, 3, 4, 5, 0, 1, 2], [3, 3, 3]], ids=["batch", "one class"])
def test_hafeature_equals_the_reference(reference, tree, targets):
    torch.manual_seed(0)
    method = HAFeature(tree, 7).double()
    features = (3 * torch.randn(len(targets), 7, dtype=torch.float64)).requires_grad_()
    order = torch.randperm(len(targets))
    ours = method.loss_in_order(method(features), torch.tensor(targets), order)
    (gradient,) = torch.autograd.grad(sum(ours.values()), features)
    sizes = list(tree.level_sizes)
    weights, biases = method.heads.weight.split(sizes), method.heads.bias.split(sizes)
    expected = reference.hafeature_terms(features, torch.tensor(targets), weights, biases, tree, order)
    for name, term in expected.items():
        assert ours[name].item() == pytest.approx(torch.as_tensor(term).item(), rel=1e-10)
    assert close(gradient, torch.autograd.grad(sum(expected.values()), features)[0], 1e-10)


def test_hafeature_stays_finite_when_probabilities_vanish():
    torch.manual_seed(0)
    method = HAFeature(SMALL, 7)
    features = (200 * torch.randn(8, 7)).requires_grad_()
    terms = method.loss(method(features), torch.arange(8) % 6)
    sum(terms.values()).backward()
    assert all(term.isfinite() for term in terms.values())
    assert features.grad.isfinite().all()


@pytest.mark.parametrize("distance", ["height", "depth"])
def test_crm_equals_the_matrix_product(reference, distance):
    tree = Hierarchy.from_paths(PATHS, distance)
    probabilities = torch.randn(20, 6, dtype=torch.float64).softmax(1)
    expected = reference.crm(probabilities, tree.distances)
    assert close(CRM(tree).rescore(probabilities), expected, 1e-14)


def test_crm_breaks_ties_of_siblings_exactly():
    """Two siblings the base cannot tell apart tie, so that the lower index wins, in spite of rounding elsewhere."""
    probabilities = torch.tensor([[0.1, 0.1, 0.3, 0.2, 0.15, 0.15]])
    scores = CRM(SMALL).rescore(probabilities)
    assert scores[0, 0] == scores[0, 1]
    assert scores[0, 4] == scores[0, 5]


def test_haframe_needs_as_many_features_as_classes():
    with pytest.raises(ValueError, match=r"as many features as classes \(6\), got 5"):
        HAFrame(SMALL, 5)
