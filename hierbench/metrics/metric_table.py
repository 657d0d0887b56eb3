"""Every metric, defined once: name, title, direction, unit, formula, source, and how it is computed.

The functions of `hierbench.metrics.functions`, `HierarchicalMetric` and the columns of tables follow from it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hierbench.hierarchy.label_tree import Hierarchy
from hierbench.metrics.computations import (
    BITS,
    FULL_PATH,
    INCONSISTENT,
    LIFTED_LEVELS,
    MIN_DISTANCE,
    ORDER_AT_K,
    TOP_LEVELS,
    WHOLE_RANKING,
    of_bins,
    of_coverage,
    of_distances,
    of_paths,
)
from hierbench.metrics.metric import Metric
from hierbench.utils.errors import UserError, error_line, line_in, nearest, unknown_name
from hierbench.utils.text import is_path
from hierbench.utils.user_code import run_file

if TYPE_CHECKING:
    from torch import Tensor

    from hierbench.metrics.metric_inputs import Evidence

NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
NUM_RANKED = 20  # classes that compact predictions keep
PAPER_NAMES = ("top1", "mistake_severity", "hierdist@1", "hierdist@5", "hierdist@20")  # the default columns
KS = (1, 5, 20)  # of the families over k that are listed; any other k can be asked for

LIANG = "Liang & Davis, ICCV 2023, section 4"
ILSVRC = "ILSVRC 2010, hierarchical cost of the best of k guesses"
KOSMOPOULOS = "Kiritchenko et al., Canadian AI 2006; Kosmopoulos et al., DMKD 2015"
CHANG = "Chang et al., CVPR 2021"
VALMADRE = "Valmadre, NeurIPS 2022"
PARK = "Park et al. (H-CAST), ICLR 2025"
SANI = "Sani et al. (Hier-COS), CVPR 2026"
GUO = "Guo et al., ICML 2017"
GOREN = "Goren et al., NeurIPS 2024"


# A name with "@k" or "@l" is a family: over the k best classes, or over the levels, 1 the coarsest.
METRIC_SPECS = (
    Metric("top1", "Top-1 accuracy", "higher", "%", "mean [c_1 = y]", LIANG, **of_distances("top1")),
    Metric(
        "mistake_severity",
        "Mistake severity",
        "lower",
        "edges",
        "mean over mistakes of D(y, c_1)",
        LIANG,
        **of_distances("mistake_severity"),
    ),
    Metric(
        "hierdist@k",
        "HierDist@{}",
        "lower",
        "edges",
        "mean of (D(y, c_1) + ... + D(y, c_k)) / k",
        LIANG,
        **of_distances("hierdist@{}"),
    ),
    Metric(
        "min_distance@k",
        "MinDist@{}",
        "lower",
        "edges",
        "mean of min(D(y, c_1), ..., D(y, c_k))",
        ILSVRC,
        **MIN_DISTANCE,
    ),
    Metric("level_accuracy@l", "Level {} accuracy", "higher", "%", "mean [A_l(c_1) = A_l(y)]", CHANG, **TOP_LEVELS),
    Metric(
        "level_accuracy_lifted@l",
        "Level {} accuracy (lifted)",
        "higher",
        "%",
        "mean [argmax over nodes n of level l of the sum of p below n = A_l(y)]",
        VALMADRE,
        **LIFTED_LEVELS,
    ),
    Metric("fpa", "FPA", "higher", "%", "mean [n_1 = A_1(y), ..., n_L = A_L(y)]", PARK, **FULL_PATH),
    Metric("tice", "TICE", "lower", "%", "mean [n_l is not the parent of n_(l+1) for an l]", PARK, **INCONSISTENT),
    Metric(
        "hp_micro", "hP micro", "higher", "%", "sum |A(c_1) & A(y)| / sum |A(c_1)|", KOSMOPOULOS, **of_paths("hp_micro")
    ),
    Metric(
        "hr_micro", "hR micro", "higher", "%", "sum |A(c_1) & A(y)| / sum |A(y)|", KOSMOPOULOS, **of_paths("hr_micro")
    ),
    Metric(
        "hf_micro",
        "hF micro",
        "higher",
        "%",
        "2 hP hR / (hP + hR), of the micro hP and hR",
        KOSMOPOULOS,
        **of_paths("hf_micro"),
    ),
    Metric(
        "hp_macro", "hP macro", "higher", "%", "mean of |A(c_1) & A(y)| / |A(c_1)|", KOSMOPOULOS, **of_paths("hp_macro")
    ),
    Metric(
        "hr_macro", "hR macro", "higher", "%", "mean of |A(c_1) & A(y)| / |A(y)|", KOSMOPOULOS, **of_paths("hr_macro")
    ),
    Metric(
        "hf_macro",
        "hF macro",
        "higher",
        "%",
        "mean of 2 |A(c_1) & A(y)| / (|A(c_1)| + |A(y)|)",
        KOSMOPOULOS,
        **of_paths("hf_macro"),
    ),
    Metric(
        "information_severity",
        "Information severity",
        "lower",
        "bits",
        "mean over mistakes of log2(classes below LCA(y, c_1))",
        VALMADRE,
        **BITS,
    ),
    Metric(
        "hops@k",
        "HOPS@{}",
        "higher",
        "%",
        "mean of clip(1 - sum_j<=k w_j |r*_j - r_j| / sum_j<=k w_j |r*_j - r*_(k+1-j)|, 0, 1)",
        SANI,
        **ORDER_AT_K,
    ),
    Metric("hops", "HOPS", "higher", "%", "hops@K", SANI, **WHOLE_RANKING),
    Metric("ece", "ECE", "lower", "%", "sum over 15 bins of |bin| / N |accuracy - confidence|", GUO, **of_bins(0)),
    Metric("mce", "MCE", "lower", "%", "max over 15 bins of |accuracy - confidence|", GUO, **of_bins(1)),
    Metric(
        "haurc_climbing",
        "hAURC (climbing)",
        "lower",
        "",
        "area under risk over coverage: the lowest ancestor of c_1 with p >= theta",
        GOREN,
        **of_coverage("climbing"),
    ),
    Metric(
        "haurc_selective",
        "hAURC (selective)",
        "lower",
        "",
        "the same with the root unless p(c_1) >= theta",
        GOREN,
        **of_coverage("selective"),
    ),
)
SPEC_BY_NAME = {spec.name: spec for spec in METRIC_SPECS}
user_metrics = dict[str, Metric]()  # of files that were named, by the names of their metrics
FUNCTIONS = """
expected_calibration_error full_path_accuracy_score haurc_loss hf1_score hierarchical_distance
hierarchical_precision_score hierarchical_recall_score hierdist_at_k_loss hops_score information_severity
level_accuracy_score lifted_level_accuracy_score maximum_calibration_error min_distance_at_k_loss
mistake_severity top1_score tree_inconsistency_loss
""".split()  # in `hierbench.metrics.functions`, which imports PyTorch


def known_metrics(hierarchy: Hierarchy | None = None) -> list[str]:
    """Return the names that a table can show, in the order of the documentation.

    The families over k are listed at 1, 5 and 20, as far as there are as many classes; those over the levels at every
    level. Without a tree, those over k are all listed, and those over the levels at level 1.
    """
    names = []
    for spec in METRIC_SPECS:
        family, _, parameter = spec.name.partition("@")
        most = 20 if hierarchy is None else hierarchy.num_classes
        if parameter == "l":
            numbers = range(1, 1 + (1 if hierarchy is None else hierarchy.num_levels))
            names += [f"{family}@{level}" for level in numbers]
        elif parameter:
            ks = KS[1:] if family == "hops" else KS  # a single class has no order
            names += [f"{family}@{k}" for k in ks if k <= most]
        else:
            names.append(spec.name)
    return names


def find_metric(name: str, hierarchy: Hierarchy | None = None) -> Metric:
    """Return the metric of a name, such as "ece" or "hierdist@20".

    Args:
        name: of a metric, of a family with its parameter, or the path of a file that defines one.
        hierarchy: of the table, if known: then a level or k that it does not have is an error, too.

    Raises:
        UserError: unknown; the error suggests the nearest.
    """
    if is_path(name):
        return _read_metric(Path(name))
    if name in user_metrics:
        return user_metrics[name]
    family, at, text = name.partition("@")
    if name in SPEC_BY_NAME and not at:
        return SPEC_BY_NAME[name]
    for parameter in ("k", "l"):
        spec = SPEC_BY_NAME.get(f"{family}@{parameter}")
        if spec and re.fullmatch(r"[1-9][0-9]{0,5}", text):
            if hierarchy is not None:
                classes = hierarchy.num_classes
                levels = hierarchy.num_levels
                most, has = (classes, f"{classes} classes") if parameter == "k" else (levels, f"levels 1 to {levels}")
                if int(text) > most:
                    raise UserError(f"there is no metric {name!r} here: the tree has {has}")
            return replace(spec, name=name, title=spec.title.format(text))
        if spec:
            example = f"{family}@{5 if parameter == 'k' else 1}"
            parameter_name = "number of classes" if parameter == "k" else "level, 1 the coarsest"
            raise UserError(f"the metric {name!r} needs a {parameter_name}, such as {example!r}")
    meant = nearest(name, [*known_metrics(hierarchy), *known_metrics()])
    raise unknown_name("metric", name, known_metrics(hierarchy), meant)


def _read_metric(path: Path) -> Metric:
    """Return the metric that a file defines, and know it by its name from here on.

    Raises:
        UserError: it cannot be imported, defines none or several, or its metric fails on a small tree.
    """

    def problem(error: BaseException) -> UserError:
        return UserError(f"metric {path} cannot be imported: {error_line(error)}{line_in(error, path.name)}")

    module = run_file(path, "metric", problem)
    defined = [value for value in vars(module).values() if isinstance(value, Metric)]
    if len(defined) != 1:
        raise UserError(f"metric {path}: the file must define exactly one Metric, it defines {len(defined)}")
    metric = defined[0]
    if not NAME.fullmatch(metric.name) or metric.name in SPEC_BY_NAME or metric.of != "classes":
        raise UserError(f"metric {path}: {metric.name!r} must be a new name of letters, digits and _, of classes")
    from hierbench.metrics.metric_check import check_metric

    check_metric(metric)
    user_metrics[metric.name] = metric
    return metric


def follows_from_ranks(name: str, num: int = NUM_RANKED) -> bool:
    """Whether a metric follows from the `num` best classes of each example."""
    info = find_metric(name)
    return info.ranked and (name.startswith("level_") or info.parameter <= num)


def compute_metrics(names: Sequence[str], evidence: "Evidence") -> dict[str, float]:
    """Compute metrics; `PAPER_NAMES` exactly as `evaluate` does.

    Args:
        names: see `find_metric`.
        evidence: at least one example.

    Returns:
        {name: value} in the order given, NaN where a metric is undefined: severities without mistakes, a k above K, a
        level that the tree does not have, consistency of a method that predicts classes alone.

    Raises:
        UserError: a name is unknown.
        ValueError: no examples, wrong shapes, a target that is not a class, a NaN among the scores.
    """
    return compute_in_parts(names, [evidence])


def compute_in_parts(names: Sequence[str], parts: Iterable["Evidence"]) -> dict[str, float]:
    """Compute metrics of examples that come in parts, one of which is held at a time; as `compute_metrics`."""
    return dict(zip(names, compute_each([find_metric(name) for name in names], parts), strict=True))


def compute_each(metrics: Sequence[Metric], parts: Iterable["Evidence"]) -> list[float]:
    """Compute metrics of examples that come in parts; errors are those of `compute_metrics`."""
    counts: list[list[Tensor]] = [[] for _ in metrics]
    for evidence in parts:
        targets = evidence.known_targets()
        tree = evidence.hierarchy
        for metric, metric_counts in zip(metrics, counts, strict=True):
            needs = metric.needs(evidence, metric.parameter) if metric.exists_on(tree) else (None,)
            if needs[0] is not None:
                metric_counts.append(metric.count(needs, targets, tree))
    return [metric.value_of(metric_counts) for metric, metric_counts in zip(metrics, counts, strict=True)]
