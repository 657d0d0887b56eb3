# %% [markdown]
# # Your own predictions
#
# After this page you can measure a model that was trained anywhere: you need its scores, the targets and a tree.
#
# Two models are imitated here, on the 100 classes of CIFAR-100 with their tree. Both are right on about the same images. When the
# first is wrong, it takes any class; when the second is wrong, it mostly takes a near one. Accuracy cannot tell them apart.

# %%
import matplotlib.pyplot as plt
import numpy as np

import hierbench
from hierbench import Hierarchy

tree = Hierarchy.load("cifar100")  # or Hierarchy.read("tree.csv")
rng = np.random.default_rng(0)
targets = np.repeat(np.arange(tree.num_classes), 20)  # [N], class indices
noise = rng.normal(size=(len(targets), tree.num_classes))
right = 2.6 * np.eye(tree.num_classes)[targets]
near = -1.1 * tree.distances[targets]  # [N, K], 0 for the target, down to -5.5

blind = noise + right  # [N, K], larger = ranked earlier
aware = noise + 0.55 * right + near
{"classes": tree.num_classes, "height": tree.height, "images": len(targets)}

# %% [markdown]
# ## All metrics at once
#
# `score` gives the paper's metrics with 95% intervals, here over images (bootstrap). A list of arrays is a model's seeds, and the
# intervals are then over seeds.

# %%
hierbench.score(blind, targets, tree, name="blind to the tree")

# %%
hierbench.score(aware, targets, tree, name="aware of the tree", metrics="+hf_macro,+hops@20")

# %% [markdown]
# ## Single metrics
#
# Each metric is also a function, as in scikit-learn. Where tables print per cent, these are between 0 and 1.

# %%
from hierbench.metrics import hf1_score, hierdist_at_k_loss, mistake_severity

for name, scores in {"blind": blind, "aware": aware}.items():
    predicted = scores.argmax(axis=1)
    print(
        f"{name}: accuracy {np.mean(predicted == targets):.3f}, hierarchical F1 {hf1_score(targets, predicted, tree):.3f}, "
        f"severity {mistake_severity(targets, predicted, tree):.2f}, "
        f"HierDist@5 {hierdist_at_k_loss(targets, scores, tree, k=5):.2f}"
    )

# %% [markdown]
# ## Where the mistakes are

# %%
figure, axis = plt.subplots(figsize=(6, 3))
heights = np.arange(1, tree.height + 1)
for shift, (name, scores) in zip((-0.2, 0.2), {"blind": blind, "aware": aware}.items(), strict=True):
    distances = tree.distances[targets, scores.argmax(axis=1)]
    axis.bar(heights + shift, [np.sum(distances == height) for height in heights], width=0.4, label=name)
axis.set(xlabel="height of the lowest common ancestor of target and prediction", ylabel="mistakes")
axis.legend()
plt.show()

# %% [markdown]
# ## A row in a leaderboard
#
# With `dataset=` in place of the tree, the predictions are those of its test images, and become a row beside the methods that were
# trained here. Files of timm, Hugging Face and others are read as they are ([your predictions](../your-predictions.md)).
