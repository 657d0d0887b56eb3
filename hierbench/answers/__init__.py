"""From probabilities to answers: decision rules, metrics of nodes, temperature, sets with a guarantee."""

from hierbench.answers.conformal import conformal_sets
from hierbench.answers.decision_rule import Rule, answer, known_rules, rule
from hierbench.answers.deployed_rule import DeployedRule, load_rule
from hierbench.answers.node_metrics import node_metrics
from hierbench.answers.temperature import fit_temperature

__all__ = [
    "DeployedRule",
    "Rule",
    "answer",
    "conformal_sets",
    "fit_temperature",
    "known_rules",
    "load_rule",
    "node_metrics",
    "rule",
]
