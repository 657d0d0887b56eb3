"""This suite beside the public code that people would use instead: `bench.py --peers FOLDER` prints docs/speed.md.

FOLDER has the repositories as they are cloned; their code is read from there, and is no part of this project. Both
sides get the same tree and numbers, and what they return is compared before they are timed.

Shapes: N examples, B batch, K classes, N_n nodes.
"""

import ast
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hierbench import evaluate
from hierbench.answers import node_metrics
from hierbench.data.source import shipped_paths
from hierbench.execution.parameters import stand_in_tree
from hierbench.hierarchy import Nodes
from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.leaderboard.formats import render
from hierbench.leaderboard.table import Line, Number, Table, Text
from hierbench.methods.conditional_softmax import ConditionalSoftmax
from hierbench.methods.crm import CRM
from hierbench.methods.descendant_softmax import DescendantSoftmax
from hierbench.methods.haframe import hierarchy_aware_frame
from hierbench.methods.hxe import HXE
from hierbench.methods.soft_labels import SoftLabels
from hierbench.metrics import hf1_score
from tests.tools.bench import in_turn, median_ratio

LEVELS = {  # nodes per level, below the root
    1010: (3, 4, 9, 34, 57, 72, 1010),  # iNaturalist 2019
    10_000: (3, 13, 51, 273, 1103, 4884, 10_000),  # iNaturalist 2021
}
BATCH = 256
ROUNDS, LIMIT = 5, 20.0  # of pairs; seconds after which no further pair of a row begins
PEERS = {  # folder: where it is from
    "making-better-mistakes": "fiveai/making-better-mistakes (Bertinetto et al., 2020)",
    "CRM-Better-Mistakes": "sgk98/CRM-Better-Mistakes (Karthik et al., 2021)",
    "HAFrame": "ltong1130ztr/HAFrame (Liang & Davis, 2023)",
    "hiercls": "jvlmdr/hiercls (Valmadre, 2022)",
    "hierarchical_decision_rules": "RomanPlaud/hierarchical_decision_rules (Plaud et al., 2025)",
    "hiclass": "scikit-learn-contrib/hiclass (Miranda et al., 2023), from PyPI",
}
PAGE = """# Speed beside other code

After this page you know how long the same work takes here and in the public code that one would use otherwise, and how
far the code here is from the machine's own limits.

```bash
git clone https://github.com/fiveai/making-better-mistakes peers/making-better-mistakes   # and the others below
uv run --with nltk,absl-py,hiclass python tests/tools/bench.py --peers peers > docs/speed.md
```

writes this page. Both sides get the same tree and the same numbers in one process, in turn. Times are medians, and the
ratio is the median over the pairs: how many times as long the other code takes. What both return is compared first, and
a difference stops the script. Losses are a forward and backward pass for a batch of 256 logits. The limit is what no
code can avoid: one pass over the scores or logits, forward and backward for losses, and for the frame one product of
two K x K matrices. Classes: CIFAR-100's tree, and trees with the level sizes of iNaturalist 2019 and 2021.
"""
MISSING = """What is missing does not run at 10,000 classes, or not in minutes: a matrix of costs takes 100 million
lookups per evaluation (`CRM-Better-Mistakes`, `HAFrame`), a table of soft labels as many and HXE's masks 5.6 GB
(`making-better-mistakes`), and the frame 101 eigendecompositions (`HAFrame`). `hierarchical_decision_rules` makes a
matrix of costs from a shortest path per pair of classes, at any size. HXE of `making-better-mistakes` multiplies
probabilities by one-hot tensors [K, edges], and loses an edge whose probability underflows; the sums here are of logs.
"""


@dataclass(frozen=True)
class Comparison:
    """One kind of work: here, in the code of a peer, and what no code can avoid."""

    name: str
    peer: str
    ours: Callable[[], Any]
    theirs: Callable[[], Any]
    limit: Callable[[], Any]
    same: Callable[[Any, Any], bool] | None = None  # None: numbers within 1e-4


class Cost:
    """Distances by pairs of class names, as the peers look them up; a matrix in place of their dictionary, which
    has 50 million entries for 10,000 classes.
    """

    def __init__(self, tree: Hierarchy) -> None:
        self.rows = tree.distances.tolist()

    def __getitem__(self, pair: tuple[int, int]) -> int:
        distance: int = self.rows[pair[0]][pair[1]]
        return distance


def functions(file: Path, *names: str, **values: Any) -> list[Any]:
    """Return functions or classes of a file without running the rest of it; `values` are the names that they use."""
    module = ast.parse(file.read_text())
    parts: list[ast.stmt] = [
        node for node in module.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in names
    ]
    exec(compile(ast.Module(parts, []), str(file), "exec"), values)
    return [values[each] for each in names]


def compare(folder: Path) -> str:
    """Return the page: a table of all comparisons.

    Raises:
        SystemExit: a repository or a package is not there.
    """
    missing = [name for name in PEERS if name != "hiclass" and not (folder / name).is_dir()]
    missing += [f"{name} (a package)" for name in ("hiclass", "nltk", "absl") if find_spec(name) is None]
    if missing:
        print(f"{folder} lacks {', '.join(missing)}; docs/speed.md says how to get them", file=sys.stderr)
        raise SystemExit(2)
    for name in ("hiercls", "making-better-mistakes", "hierarchical_decision_rules"):
        sys.path.insert(0, str(folder / name))
    torch.manual_seed(0)
    trees = [Hierarchy.from_paths(shipped_paths("cifar100")), *map(stand_in_tree, LEVELS.values())]
    rows = []
    for tree in trees:
        for row in comparisons(folder, tree):
            print(f"{tree.num_classes} classes: {row.name}, {row.peer}", file=sys.stderr)
            rows.append(Line([Text(row.name), Text(f"{tree.num_classes:,}"), Text(row.peer), *_measured(row)]))
    table = Table(
        title="Speed beside other code",
        columns=["Work", "Classes", "Other code", "Here, ms", "There, ms", "There / here", "Here / limit"],
        rows=rows,
    )
    peers = "\n".join(f"- `{name}`: {source}" for name, source in PEERS.items())
    release = torch.__version__.partition("+")[0]
    threads = f"Measured with torch.set_num_threads({torch.get_num_threads()}), PyTorch {release}, on a CPU."
    return "\n".join([PAGE, render(table, "markdown").strip(), "", threads, "", peers, "", MISSING])


def _measured(row: Comparison) -> Iterator[Number]:
    """Compare the results, and yield the four numbers of a line."""
    with redirect_stdout(StringIO()):
        ours, theirs = row.ours(), row.theirs()
        if row.same is None:
            equal = torch.allclose(*(torch.as_tensor(each).double() for each in (ours, theirs)), rtol=1e-4, atol=1e-6)
        else:
            equal = row.same(ours, theirs)
        if not equal:
            raise AssertionError(f"{row.name}, {row.peer}: {ours} here, {theirs} there")
        ours_s, theirs_s, limit_s = in_turn([row.ours, row.theirs, row.limit], ROUNDS, "cpu", LIMIT)
    yield Number(1000 * statistics.median(ours_s), ".2f")
    yield Number(1000 * statistics.median(theirs_s), ".1f")
    yield Number(median_ratio(theirs_s, ours_s), ".1f")
    yield Number(median_ratio(ours_s, limit_s), ".1f")


def comparisons(folder: Path, tree: Hierarchy) -> Iterator[Comparison]:
    """Yield what is compared on a tree; what a peer cannot do with as many classes is left out."""
    num = {100: 2000, 1010: 1000}.get(tree.num_classes, 200)
    scores, targets = torch.randn(num, tree.num_classes).double(), torch.arange(num) % tree.num_classes
    yield from _evaluation(folder, tree, scores.softmax(1), targets)
    yield from _node_work(folder, tree, scores.softmax(1), targets)
    yield from _losses(folder, tree)
    if tree.num_classes <= 1010:
        yield _frame(folder, tree)


def _evaluation(folder: Path, tree: Hierarchy, probabilities: Tensor, targets: Tensor) -> Iterator[Comparison]:
    """Yield the five metrics of the paper, and CRM with them."""
    import heapq

    crm_file = folder / "CRM-Better-Mistakes/src/compute_results.py"
    names = ("get_all_cost_sensitive", "get_topk", "get_metrics")
    (karthik_metrics,) = functions(crm_file, *names, np=np, heapq=heapq)[2:]
    names = ("apply_crm_to_softmax", "get_topk_dist", "better_mistakes_metrics")
    risk, _, liang_metrics = functions(folder / "HAFrame/MBM/scripts/crm_eval.py", *names, np=np, heapq=heapq)
    classes, scores, true = list(range(tree.num_classes)), probabilities.numpy(), targets.numpy()
    cost, crm = Cost(tree), CRM(tree)

    class Options:
        shuffle_classes = 0
        rerank = 0

    class Reranked(Options):
        rerank = 1

    def metrics() -> list[float]:
        return _five(evaluate(probabilities, targets, tree))

    def karthik(options: Any = Options) -> list[float]:
        top1, *distances = karthik_metrics(options, scores, true, cost, classes)
        return [100 * top1, *distances]

    def liang(output: Any = scores) -> list[float]:
        result, _ = liang_metrics(output, true, cost, classes)
        return [result[name] for name in ("top1", "hie_avg_1", "hie_avg_5", "hie_avg_20", "mistake")]

    def reranked() -> list[float]:
        return _five(evaluate(crm.rescore(probabilities), targets, tree))

    name = f"top-1, severity, HierDist@1, 5, 20 of {len(targets):,} examples"
    yield Comparison(name, "CRM-Better-Mistakes", metrics, karthik, probabilities.sum)
    yield Comparison(name, "HAFrame", metrics, liang, probabilities.sum)
    if tree.num_classes <= 1010:
        name = f"CRM and its metrics of {len(targets):,} examples"
        close = _nearly  # sums in another order break ties between classes of one cost otherwise
        yield Comparison(name, "CRM-Better-Mistakes", reranked, lambda: karthik(Reranked), probabilities.sum, close)
        yield Comparison(
            name, "HAFrame", reranked, lambda: liang(risk(scores, cost, classes)), probabilities.sum, close
        )


def _five(result: dict[str, float]) -> list[float]:
    return [result[name] for name in ("top1", "hierdist@1", "hierdist@5", "hierdist@20", "mistake_severity")]


def _nearly(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    return all(math.isclose(*pair, rel_tol=0.02) for pair in zip(ours, theirs, strict=True))


def _node_work(folder: Path, tree: Hierarchy, probabilities: Tensor, targets: Tensor) -> Iterator[Comparison]:
    """Yield hF, lowest common ancestors and the probabilities of all nodes."""
    import hier  # of hiercls
    from hiclass.metrics import f1
    from hierulz.hierarchy.hierarchy import Hierarchy as Plaud
    from hierulz.metrics.hf_beta_score import hFBetaScore

    nodes = Nodes(tree)
    first, predicted = nodes.num_inner, probabilities.argmax(1)
    levels = np.array([list(map(str, path)) for path in nodes.paths.tolist()])
    name = f"hF, micro, of {len(targets):,} answers"
    yield Comparison(
        name,
        "hiclass",
        lambda: hf1_score(targets.numpy(), predicted.numpy(), tree),
        lambda: f1(levels[targets], levels[predicted]),
        predicted.sum,
    )

    children: dict[int, list[int]] = {}
    number = [*range(tree.num_classes, nodes.num_nodes), *range(tree.num_classes)]  # of each of our nodes
    for node, parent in enumerate(nodes.parent.tolist()[1:], 1):
        children.setdefault(number[parent], []).append(number[node])
    plaud = Plaud(children)
    score, events = hFBetaScore(plaud), plaud.leaf_events
    answers = first + predicted, first + targets
    name = f"hF, mean, with the root, of {len(targets):,} answers"
    yield Comparison(
        name,
        "hierarchical_decision_rules",
        lambda: node_metrics(*answers, tree, root=True)["hf"],
        lambda: score.compute_metric(events[targets], events[predicted]),
        predicted.sum,
    )

    name = f"probabilities of all nodes of {len(targets):,} examples"
    order = torch.tensor(number)
    yield Comparison(
        name,
        "hierarchical_decision_rules",
        lambda: nodes.leaf_sums(probabilities),
        lambda: plaud.get_probas(probabilities.numpy())[:, order],
        probabilities.sum,
    )

    find = hier.FindLCA(hier.Hierarchy(_parents(nodes)))
    pairs = torch.randint(nodes.num_nodes, (2, 100_000))
    name = "lowest common ancestors of 100,000 pairs"
    yield Comparison(name, "hiercls", lambda: nodes.common_ancestors(*pairs), lambda: find(*pairs.numpy()), pairs.sum)


def _parents(nodes: Nodes) -> Any:
    """Return each node's parent as hiercls has them: -1 for the root."""
    parents = nodes.parent.numpy().copy()
    parents[0] = -1
    return parents


def _losses(folder: Path, tree: Hierarchy) -> Iterator[Comparison]:
    """Yield losses and their gradients."""
    import hier
    import hier_torch
    from better_mistakes.model import labels
    from better_mistakes.model.losses import HierarchicalCrossEntropyLoss

    nodes = Nodes(tree)
    theirs = hier.Hierarchy(_parents(nodes))
    targets = torch.randint(tree.num_classes, (BATCH,))
    classes = torch.randn(BATCH, tree.num_classes)
    inner = torch.randn(BATCH, nodes.num_nodes)

    conditional = ConditionalSoftmax(tree, 1)
    reference = hier_torch.HierSoftmaxNLL(theirs, with_leaf_targets=True)

    def conditional_loss(logits: Tensor) -> dict[str, Tensor]:
        return conditional.loss(nodes.sibling_log_softmax(F.pad(logits, (1, 0))), targets)

    order = reference.hier_log_softmax.cond_log_softmax.child_index - 1  # their order of logits: siblings together
    yield _loss(
        "conditional softmax", "hiercls", inner[:, 1:], conditional_loss, lambda x: reference(x, targets), order
    )

    descendant = DescendantSoftmax(tree, 1)
    weights = 1.0 / nodes.num_leaves.float()
    cousins = hier_torch.DescendantSoftmaxCousinLoss(theirs, with_leaf_targets=True, node_weight=weights)
    yield _loss(
        "descendant softmax", "hiercls", inner, lambda x: descendant.loss(x, targets), lambda x: cousins(x, targets)
    )

    hxe = HXE(tree, 1, HXE.Params(alpha=0.1))
    # Their weights begin with 1, the method's with exp(-alpha).
    flat = hier_torch.FlatBertinettoHXE(theirs, alpha=0.1, with_leaf_targets=True)
    yield _loss("HXE", "hiercls", classes, lambda x: hxe.loss(x, targets), lambda x: math.exp(-0.1) * flat(x, targets))
    if tree.num_classes > 1010:
        return

    shape, weight_tree = _nltk_trees(tree, 0.1)
    names = [str(leaf) for leaf in range(tree.num_classes)]
    bertinetto = HierarchicalCrossEntropyLoss(shape, names, weight_tree)
    yield _loss(
        "HXE", "making-better-mistakes", classes, lambda x: hxe.loss(x, targets), lambda x: bertinetto(x, targets)
    )

    soft = SoftLabels(tree, 1, SoftLabels.Params(beta=10.0))
    table = labels.make_all_soft_labels(Cost(tree), range(tree.num_classes), 10.0)

    def divergence(x: Tensor) -> Tensor:
        soft_targets = labels.make_batch_soft_labels(table, targets, tree.num_classes, BATCH, None)
        return F.kl_div(x.log_softmax(1), soft_targets, reduction="batchmean")

    with patch.object(torch.Tensor, "cuda", lambda self, *place: self):  # the code asks for a GPU
        yield _loss("soft labels", "making-better-mistakes", classes, lambda x: soft.loss(x, targets), divergence)


def _loss(
    name: str,
    peer: str,
    logits: Tensor,
    ours: Callable[[Tensor], Any],
    theirs: Callable[[Tensor], Tensor],
    order: Tensor | None = None,
) -> Comparison:
    """Return the comparison of a loss and its gradient; ours gives the terms of a method, `order` is theirs."""
    order = torch.arange(logits.shape[1]) if order is None else order
    permuted = logits[:, order].clone()

    def gradient(loss: Callable[[Tensor], Any], values: Tensor) -> Tensor:
        leaf = values.clone().requires_grad_()
        value = loss(leaf)
        total = sum(value.values()) if isinstance(value, dict) else value
        total.backward()
        assert leaf.grad is not None
        return leaf.grad

    def close(mine: Tensor, other: Tensor) -> bool:
        return float((mine[:, order] - other).abs().max()) <= 1e-4 * float(other.abs().max())

    def limit() -> Tensor:  # read the logits, write a gradient of their size
        leaf = logits.clone().requires_grad_()
        leaf.exp().sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    first, second = partial(gradient, ours, logits), partial(gradient, theirs, permuted)
    return Comparison(f"{name}, loss and gradient", peer, first, second, limit, close)


def _nltk_trees(tree: Hierarchy, alpha: float) -> tuple[Any, Any]:
    """Return the tree with class numbers for leaves, and the weights exp(-alpha depth) in its shape."""
    from nltk.tree import Tree

    nodes = Nodes(tree)
    below: dict[int, list[int]] = {}
    for node, parent in enumerate(nodes.parent.tolist()[1:], 1):
        below.setdefault(parent, []).append(node)

    def build(node: int, label: Callable[[int], Any]) -> Any:
        return Tree(label(node), [build(child, label) for child in below[node]]) if node in below else label(node)

    depth, first = nodes.depth.tolist(), nodes.num_inner
    shape = build(0, lambda node: str(node - first) if node >= first else f"inner {node}")
    return shape, build(0, lambda node: math.exp(-alpha * depth[node]))


def _frame(folder: Path, tree: Hierarchy) -> Comparison:
    """Return the comparison of HAFrame's frame: S = W W^T is the same, W is rotated at random."""
    names = (
        "map_hdistance_to_cosine_similarity_exponential_decay",
        "cls_weights_matrix_factorization_solver",
        "find_max_separation_matrix_factorization_solver",
        "distance_matrix_to_haf_cls_weights",
    )
    solve = functions(folder / "HAFrame/HAFrame/solve_HAF.py", *names, np=np)[-1]
    distances, num = tree.distances, tree.num_classes
    square = torch.randn(num, num, dtype=torch.float64)

    def close(ours: Any, theirs: Any) -> bool:
        return bool(np.abs(ours[0] @ ours[0].T - theirs[0] @ theirs[0].T).max() < 1e-6)

    return Comparison(
        "HAFrame's frame",
        "HAFrame",
        lambda: hierarchy_aware_frame(distances, 3.0, "authors"),
        lambda: solve(distances.astype(float), range(num), num, 3.0),
        lambda: square @ square,
        close,
    )
