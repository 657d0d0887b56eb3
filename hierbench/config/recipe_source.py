"""The section [source] of a dataset that a user describes in a file: images or features, tree and splits."""

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from hierbench.config.validation import Closed
from hierbench.hierarchy.tree_options import Form, Inner, Parents, TreeOptions
from hierbench.utils.errors import UserError, unknown_name

SPLIT_KINDS = ("folders", "column")  # of splits that the user has made
PLAIN_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")  # a name: part of file names, and never taken for a file
Share = Annotated[float, Field(gt=0, lt=1)]


class Splits(Closed):
    """Shares drawn at random within each class, or the user's own: "folders" train, val, test, or a "column"."""

    kind: Literal["shares", "folders", "column"] = "shares"
    val: Share | None = None
    test: Share | None = None
    seed: Annotated[int, Field(ge=0, lt=1 << 63)] = 0

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, content: Any) -> Any:
        if isinstance(content, str):
            if content not in SPLIT_KINDS:
                raise ValueError(
                    str(unknown_name("word", content, SPLIT_KINDS)) + ", or {val = 0.1, test = 0.2, seed = 0}"
                )
            return {"kind": content}
        if isinstance(content, dict) and "kind" in content:
            raise ValueError('write splits = "folders", splits = "column" or {val = 0.1, test = 0.2, seed = 0}')
        return content

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.kind == "shares":
            if self.val is None or self.test is None:
                raise ValueError("shares need val and test, as in {val = 0.1, test = 0.2, seed = 0}")
            if self.val + self.test >= 1:
                raise ValueError(f"val {self.val:g} and test {self.test:g} leave nothing to train on")
        return self


OTHER_TREE_OPTIONS = tuple(field.name for field in fields(TreeOptions) if field.name != "columns")


class SourceSection(Closed):
    """Where a user's dataset comes from; `load_recipe` makes the paths absolute."""

    images: str = ""  # a folder, a manifest (.csv, .parquet), or hf:NAME
    features: str = ""  # in place of images: an .npz, or a folder of .npy
    tree: Annotated[str, Field(min_length=1)]  # a file, or the name of a shipped tree
    columns: str | list[str] = ""  # these are the arguments of Hierarchy.read
    form: Form | None = None
    parents: Parents = "error"
    inner: Inner = "error"
    encoding: str = "utf-8"
    fill: bool = False
    fix: str = ""
    accept: str = ""
    separator: str = ""
    order: Literal["tree", "alphabetical"] | None = None  # of the classes that numbers of features without names mean
    splits: Splits = Splits.model_validate("column")  # of images
    group: str = ""  # a column of a manifest, or "folder": images of one group are on one side of every split
    resize: Literal["stretch", "center-crop"] = "stretch"
    exif_orientation: bool = True  # photographs are turned upright as their camera recorded
    labels_above: bool = False  # training images or features may have labels above the classes, which are trained on
    skip_broken: bool = False  # images that cannot be read are left out, counted and recorded

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if bool(self.images) == bool(self.features):
            raise ValueError("give images or features" + ", not both" * bool(self.images))
        odd = self.model_fields_set & {"splits", "group", "resize", "exif_orientation", "skip_broken"}
        if self.features and odd:
            raise ValueError(f"{sorted(odd)[0]} is for images; features come in train, val and test")
        if self.images and self.order:
            raise ValueError("order is for features; images have the names of their classes")
        if self.images and "splits" not in odd:
            raise ValueError("key splits is missing")
        if self.splits.kind == "folders" and self.is_manifest:
            raise ValueError('splits = "folders" needs a folder of images; a manifest has splits = "column"')
        return self

    @property
    def is_manifest(self) -> bool:
        """Whether the images are listed in a file."""
        return Path(self.images).suffix.lower() in (".csv", ".parquet")

    @property
    def tree_options(self) -> TreeOptions:
        """How the tree is read."""
        columns = self.columns if isinstance(self.columns, str) else ",".join(self.columns)
        return TreeOptions(columns, **{name: getattr(self, name) for name in OTHER_TREE_OPTIONS})

    def below(self, folder: Path) -> "SourceSection":
        """Return the section with its paths taken from a folder; a tree without a file there is a shipped one."""
        tree = folder / self.tree
        is_path = tree.exists() or "/" in self.tree or Path(self.tree).suffix
        changed = {"tree": str(tree) if is_path else self.tree}
        if self.features:
            changed["features"] = str(folder / self.features)
        elif not self.images.startswith("hf:"):
            changed["images"] = str(folder / self.images)
        return self.model_copy(update=changed)


def is_dataset_file(dataset: str) -> bool:
    """Whether a dataset is given by its file rather than by name."""
    return dataset.endswith(".toml") or "/" in dataset


def check_name(name: str, builtin: Sequence[str], where: str) -> None:
    """Raise a UserError unless the name of a user's dataset is plain and new."""
    if not PLAIN_NAME.fullmatch(name):
        raise UserError(f"{where}: dataset = {name!r} must be up to 64 letters, digits, - and _ (it names files)")
    if name.lower() in (*builtin, "all") or any(name.lower().startswith(f"{reserved}-jpeg") for reserved in builtin):
        raise UserError(f"{where}: dataset = {name!r} is the name of a built-in dataset; choose another")
