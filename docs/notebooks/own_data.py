# %% [markdown]
# # Your own data
#
# After this page you can compare methods on a folder of images and a taxonomy.
#
# ## A folder per class, and a tree
#
# In place of your photographs, this draws 30 small pictures of each of eight leaves. The tree is a table: a path per class, coarsest
# first.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

import hierbench

TREE = """\
group,genus,species
broadleaf,oak,red oak
broadleaf,oak,white oak
broadleaf,maple,sugar maple
broadleaf,maple,silver maple
conifer,pine,scots pine
conifer,pine,black pine
conifer,spruce,norway spruce
conifer,spruce,blue spruce
"""
rows = [line.split(",") for line in TREE.splitlines()[1:]]
LOBES = {"oak": 5, "maple": 3, "pine": 14, "spruce": 22}
rng = np.random.default_rng(0)


def draw_leaf(group, genus, species):
    """Draw one leaf: the group gives its width, the genus its lobes, the species its color."""
    angle = np.linspace(0, 2 * np.pi, 240)
    radius = 22 + 6 * np.cos(LOBES[genus] * angle) + rng.normal(0, 0.6, angle.size)
    width = (1.0 if group == "broadleaf" else 0.45) * rng.uniform(0.85, 1.15)
    turn = rng.uniform(-0.5, 0.5)
    x, y = width * radius * np.cos(angle), radius * np.sin(angle)
    points = np.stack([32 + x * np.cos(turn) - y * np.sin(turn), 32 + x * np.sin(turn) + y * np.cos(turn)], axis=1)
    second = species == sorted(name for _, of, name in rows if of == genus)[1]
    color = np.clip(np.array([60, 130, 60]) + (35 if second else 0) + rng.normal(0, 14, 3), 0, 255).astype(int)
    image = Image.new("RGB", (64, 64), tuple(rng.integers(205, 255, 3).tolist()))
    ImageDraw.Draw(image).polygon([tuple(point) for point in points.tolist()], fill=tuple(color.tolist()))
    return image


Path("drawn-leaves.csv").write_text(TREE)
for path in rows:
    folder = Path("images", path[-1])
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(30):
        draw_leaf(*path).save(folder / f"{number:02}.png")

figure, axes = plt.subplots(1, len(rows), figsize=(11, 1.8))
for axis, path in zip(axes, rows, strict=True):
    axis.imshow(Image.open(Path("images", path[-1], "00.png")))
    axis.set_title(path[-1], fontsize=9)
    axis.axis("off")
plt.show()

# %% [markdown]
# ## From folder to dataset
#
# `data new` compares the folders with the tree, measures the images, and writes a recipe, which you may edit. A class without images
# or a folder without a leaf is named.

# %%
# !hierbench data new drawn-leaves --images images --tree drawn-leaves.csv

# %%
print(Path("drawn-leaves.toml").read_text())

# %% [markdown]
# ## Train and compare
#
# The file stands where a dataset's name would. Six epochs are too few to learn much; the file says how many are planned.

# %%
SHORT = {"types": "type-II", "seeds": 2, "set": {"train.epochs": 6}, "jobs": 1, "mlflow": "off"}
board = hierbench.run(["ce", "crm", "haframe"], "./drawn-leaves.toml", **SHORT)
board

# %% [markdown]
# How far off the mistakes are: a species may be wrong and its genus right.

# %%
board.plot("severity")

# %% [markdown]
# All other commands take the file as well ([your data](../your-data.md)). With few photographs, start from a published network:
# `hierbench data new drawn-leaves --images images --tree drawn-leaves.csv --backbone timm:tf_efficientnet_lite0` downloads its weights and trains
# only what stands on them.
