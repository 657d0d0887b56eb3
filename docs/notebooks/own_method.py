# %% [markdown]
# # Your own method
#
# After this page you can try an idea for a loss in a notebook: define it in a cell, train it beside other methods, look at the
# curves, and compare it with a baseline.
#
# The task is `shapes`, 48 classes of small drawn pictures, with a tree of three levels above them. To keep this short, each model is
# trained for two epochs with two seeds; for a real comparison, leave `SHORT` out.

# %%
import torch
import torch.nn.functional as F
from torch import nn

import hierbench
from hierbench import Method, hyperparameter

SHORT = {"types": "type-I", "seeds": 2, "set": {"train.epochs": 2, "train.batch_size": 64}, "jobs": 1, "mlflow": "off"}

# %% [markdown]
# ## The idea
#
# Cross-entropy treats all wrong classes alike. Let the target be a distribution that falls with the distance in the tree, so that
# a wrong class is the less wrong the nearer it is. `distances` is a [K, K] matrix of the tree; `beta` says how fast the target
# falls.


# %%
class NearTargets(Method):
    """Cross-entropy with targets that fall with the distance in the tree."""

    name, title = "near_targets", "near targets"
    source = "Bertinetto et al., Making Better Mistakes, CVPR 2020"

    class Params(Method.Params):
        beta: float = hyperparameter(5.0, low=0.5, high=30.0, grid=(5.0, 10.0))

    def __init__(self, hierarchy, num_features, params=None):
        super().__init__(hierarchy, num_features, params)
        distances = torch.tensor(hierarchy.distances) / hierarchy.height
        self.register_buffer("targets", torch.softmax(-self.params.beta * distances.float(), dim=1))
        self.classifier = nn.Linear(num_features, hierarchy.num_classes)

    def forward(self, features):  # [B, D] -> [B, K]
        return self.classifier(features)

    def loss(self, outputs, targets):
        return {"near": F.cross_entropy(outputs, self.targets[targets])}

    def scores(self, outputs):
        return outputs


# %% [markdown]
# ## Train
#
# `run` generates the data, trains what is missing and returns a leaderboard. The source of the class is kept with its runs, so that
# anyone can repeat them. CRM trains nothing: it re-ranks the predictions of cross-entropy.

# %%
board = hierbench.run(["ce", "crm", NearTargets], "shapes", **SHORT)
board

# %% [markdown]
# ## Look
#
# How loss and validation metrics went, and where the mistakes are in the tree: at height 1 a mistake is a sibling of the target, at
# height 3 it shares nothing with it.

# %%
board.plot("curves")

# %%
board.plot("severity")

# %% [markdown]
# ## Compare
#
# The rows minus cross-entropy, seed by seed. With two seeds the intervals are wide.

# %%
board.compare("ce")

# %% [markdown]
# ## Another hyperparameter
#
# Only what is new is trained. `board.frame()` has the numbers for pandas.

# %%
wider = hierbench.run(["ce", NearTargets.with_params(beta=15.0)], "shapes", **(SHORT | {"seeds": 1}))
wider.frame()[["title", "top1", "mistake_severity", "hierdist@1"]]

# %% [markdown]
# To go on: put the class in a file `near_targets.py`, and every command takes it, as in `hierbench methods check ./near_targets.py`
# and `hierbench tune --methods ./near_targets.py --dataset shapes` ([your method](../your-method.md)).
