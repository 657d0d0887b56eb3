"""Mistakes in predictions made elsewhere, in a grid to tune and in a row to reproduce. The wording is pinned here."""

import io
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hierbench.api.registry import find_method
from hierbench.config.overrides import format_override
from hierbench.config.recipe import load_recipe
from hierbench.studies.scoring.predictions import read_predictions
from hierbench.studies.scoring.scores import rank
from hierbench.studies.tuning.search import search_space
from hierbench.studies.tuning.trial_record import TrialRecord
from tests.support.messages import check_message
from tests.support.publications import loose
from tests.support.trees import LIVING as TREE

PUBLISHED = Path(__file__).resolve().parents[2] / "leaderboard/published/grocery-finetuned"
OK = np.zeros((3, 6), dtype=np.float32)
HEAD = "filename,oak,elm,fern,wren,robin,cod\n"
ROW = "a,1,2,3,4,5,6\n"
SORTED = "id,p_0,p_1,p_2,p_3,p_4,p_5\na,6,5,4,3,2,1\nb,6,5,4,3,2,1\n"


def npz(**arrays):
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def promising(descr, shape, content):
    """An .npz whose header promises more than it has."""
    header, file = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": descr, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("scores.npy", header.getvalue() + content)
    return file.getvalue()


FILES = [  # name, content, and parts of the line
    ("a.npz", npz(scores=np.where(np.eye(3, 6) > 0, np.nan, 0), targets=[0, 1, 2]), "NaN", "row 0"),
    ("a.npz", npz(scores=OK, targets=[0, 6, 1]), "targets: 6 in row 1", "0 to 5"),
    ("a.npz", npz(predictions=OK, label_ids=[0, -100, 1]), "-100 in row 1"),
    ("a.npz", npz(scores=OK, targets=[0, 0.5, 1]), "0.5 is not a class index"),
    ("a.npz", npz(scores=OK[:, :5], targets=[0, 1, 2]), "3 x 5", "6 classes"),
    ("a.npz", npz(scores=OK, targets=[0, 1]), "targets must be [3]"),
    ("a.npz", npz(scores=np.array([{}], dtype=object)), "pickle", "never read"),
    ("a.npz", npz(targets=[0, 1]), "no array of scores", "targets"),
    ("a.npz", npz(scores=OK, logits=OK), "two arrays of scores"),
    ("a.npz", npz(scores=np.full((3, 6), "x")), "not real numbers"),
    ("a.npz", npz(scores=OK[:0]), "no predictions"),
    ("a.npz", npz(predictions=[0, 6], targets=[0, 1]), "classes", "6 in row 1"),
    ("a.npz", npz(scores=[0.5, 0.2], targets=[0, 1]), "scores are 2, not N x 6"),
    ("a.npz", npz(index=[[0, 0]], targets=[0]), "ranks a class twice"),
    ("a.npz", npz(scores=OK, targets=[0, 1, 2])[:300], "not a complete .npz"),
    ("a.npz", promising("<f4", (1 << 40, 6), b"\0" * 100), "not a complete .npz file"),
    # As names of examples these take no room in the file.
    ("a.npz", promising("<U0", (1 << 40,), b""), "holds no numbers and no text"),
    ("a.npz", "nothing", "not a complete .npz"),
    ("a.npz", None, "cannot be read"),
    ("a.pkl", pickle.dumps([1]), "pickles", "never read"),
    ("a.xlsx", "nothing", ".xlsx", ".parquet"),
    ("a.csv", HEAD.replace("elm", "Elm") + ROW, "'elm'", "'Elm' differs in case"),
    ("a.csv", "id,oak,fern,wren,robin,cod\na,1,2,3,4,5\n", "1 of 6 classes: 'elm'"),
    ("a.csv", HEAD.replace("\n", ",yew\n") + "a,1,2,3,4,5,6,7\n", "'yew' is not a class"),
    ("a.csv", HEAD.replace("\n", ",target\n") + "a,1,2,3,4,5,6,Oak\n", "'Oak' in row 0", "mean 'oak'"),
    ("a.csv", HEAD + "a,1,2,3,x,5,6\n", "'x' in column 'wren', row 0 is not a number"),
    ("a.csv", "id,prob_0,prob_2\na,1,2\n", "prob_0, prob_1, ... are not all there"),
    ("a.csv", "id,prob_0,prob_1\na,1,2\n", "2 columns", "6 classes", "--include-index"),
    ("a.csv", "filename,prob\na,0.9\n", "1 columns", "--include-index"),
    ("a.csv", SORTED, "sorted in every row"),
    ("a.csv", "split," + HEAD + "tset," + ROW, "'tset'", "'test'"),
    ("a.csv", HEAD, "no rows"),
    ("a.csv", "", "a.csv"),
    ("a.csv", HEAD + "a,1,2,3,4,5,6,7,8\n" + ROW, "more cells than the header"),
    ("a.csv", 'id,prob,index\na,"[1 2]","[0 1]"\nb,[1],[0]\n', "1 to 2 entries"),
    ("a.parquet", "PAR1", "not a complete .parquet"),
    ("a.json", '{"a": [1]}', "no table"),
    ("a.json", "[" * 100_000, "nested too deeply"),
]
RATES = "lr.backbone, lr.transform, lr.classifier"
GRIDS = {  # of HAFrame
    "tune.grid.haframe.beta=[1]": "haframe tunes alpha, gamma",
    "tune.grid.haframe.alpha=[]": "is empty",
    "tune.grid.haframe.alpha=[2.0]": "hyperparameters of haframe: alpha",
    "tune.grid.haframe.lr.clasifier=[0.1]": f"haframe tunes alpha, gamma, {RATES}",
    "tune.grid.haframe.lr=[0.1]": f"haframe tunes alpha, gamma, {RATES}",
    "tune.grid.haframe.lr.transform=[0.1,0]": "a learning rate must be positive, not 0",
    "tune.grid.all.lr.classifier=[]": "tune.grid.all.lr.classifier is empty",
    "tune.grid.all.gamma=[1]": f"all methods share only {RATES}",
}
KEYS = {"methods.x.y": None, "methods.a b.y": 1, "methods.x=1.y": 1, "methods..y": 1}


def read(path, content):
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    rank(read_predictions(path, TREE), TREE)


CALLS = [
    *((parts, lambda folder, n=name, c=content: read(folder / n, c)) for name, content, *parts in FILES),
    *(
        ([message], lambda _, g=grid: search_space(load_recipe("shapes", [g]), find_method("haframe")))
        for grid, message in GRIDS.items()
    ),
    *((["cannot be given"], lambda _, k=key, v=value: format_override(k, v)) for key, value in KEYS.items()),
    (["sqlite"], lambda folder: TrialRecord(f"sqlite:///{folder}/no/such/folder/x.db", "s", folder)),
]


@pytest.mark.parametrize(("parts", "call"), CALLS)
def test_a_mistake_is_one_line(tmp_path, parts, call):
    check_message(parts, call, tmp_path)


def test_a_row_that_is_not_there(cli, tmp_path):
    cli(tmp_path, "reproduce", PUBLISHED, "cee").one_line("did you mean 'ce:type-I'")
    cli(tmp_path, "reproduce", PUBLISHED, "ce:type-I:topp").one_line("unknown metric 'topp'")
    cli(tmp_path, "reproduce", PUBLISHED, "ce", "--dataset", "shapes").one_line("no runs of shapes")
    cli(tmp_path, "reproduce", tmp_path / "nowhere", "ce").one_line("no such folder")
    cli(tmp_path, "reproduce", tmp_path, "ce").one_line("no runs")
    copy = loose(Path(shutil.copytree(PUBLISHED, tmp_path / "copy")))
    cli(tmp_path, "reproduce", copy, "ce:type-I", "--run", "--runs", copy).one_line("holds the records themselves")
