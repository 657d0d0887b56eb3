"""A method of your own as a class: focal loss, compared with cross-entropy and CRM on generated pictures.

    uv run python examples/own_method.py

It trains nine small runs into a temporary folder, in about a minute; run again, it trains nothing. docs/your-method.md
goes on.
"""

import tempfile

import torch
from torch import nn

import hierbench
from hierbench import Method, hyperparameter


class Focal(Method):
    """Linear classifier with the focal loss -(1 - p_y)^gamma log p_y, which weighs easy examples less."""

    name = "focal"
    title = "focal loss"
    source = "Lin et al., Focal Loss for Dense Object Detection, ICCV 2017, equation 4"

    class Params(Method.Params):
        """gamma: how much less easy examples count; 0 is cross-entropy."""

        gamma: float = hyperparameter(2.0, low=0.0, high=10.0, grid=(0.5, 1.0, 2.0))

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)

    def forward(self, features):
        """Return logits [B, K] for features [B, D]."""
        return self.classifier(features)

    def loss(self, outputs, targets):
        """Return the named terms of the loss for targets [B]; training minimises their sum."""
        log_p = outputs.log_softmax(dim=1).gather(1, targets[:, None]).squeeze(1)
        return {"focal": -((1.0 - log_p.exp()) ** self.params.gamma * log_p).mean()}

    def scores(self, outputs):
        """Return [B, K]; larger is ranked earlier."""
        return outputs


folder = f"{tempfile.gettempdir()}/hierbench-examples"
options = {"types": "type-I", "seeds": 3, "set": {"train.epochs": 2}, "mlflow": "off"}
options |= {"runs": f"{folder}/runs", "data_dir": f"{folder}/data"}
board = hierbench.run(["ce", "crm", Focal], "shapes", **options)
print(board)  # the leaderboard, with 95% intervals and the rule for competitive rows

difference = board.compare("ce", "focal")["mistake_severity"]  # focal loss minus cross-entropy, paired by seed
print(f"\nmistake severity {difference.mean:+.3f} +/- {difference.ci95:.3f}, p = {difference.p:.2f}")
print(board.frame()[["method", "top1", "mistake_severity"]].to_string(index=False))

logits = torch.tensor([[2.0, 0.0, -1.0]])
tree = hierbench.Hierarchy.from_paths({"owl": ["bird", "owl"], "finch": ["bird", "finch"], "oak": ["tree", "oak"]})
print(f"\nfocal loss of one example: {Focal(tree, 4).loss(logits, torch.tensor([0]))['focal']:.4f}")
