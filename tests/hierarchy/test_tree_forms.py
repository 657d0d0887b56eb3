"""Trees as people have them: each form with the tree that it means, each fault with the way out in its error."""

import json
import time

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hierbench import Hierarchy
from hierbench.config.recipe import load_recipe
from hierbench.data.user.user_dataset import open_source
from hierbench.hierarchy.readers import canonical_text, read_tree
from hierbench.hierarchy.tree_options import TreeOptions
from hierbench.utils.errors import as_options

# animal > {bird > {owl, wren}, dog}, plant > fern
TREE = {
    "owl": ("animal", "bird", "owl"),
    "wren": ("animal", "bird", "wren"),
    "dog": ("animal", "dog"),
    "fern": ("plant", "fern"),
}
BIRDS = {
    "Corvus corax": ("Aves", "Corvidae", "Corvus", "Corvus corax"),
    "Corvus alba": ("Aves", "Corvidae", "Corvus", "Corvus alba"),
    "Tyto alba": ("Aves", "Tytonidae", "Tyto", "Tyto alba"),
}
GROUPED = {"x": ("a", "x"), "y": ("a", "y"), "z": ("b", "z")}
LABELS = {
    "x": ("O", "F", "G", "x"),
    "y": ("O", "F", "H", "y"),
    "z": ("O", "E", "I", "z"),
    "w": ("P", "D", "J", "w"),
    "v": ("P", "D", "J", "v"),
}
RANKED = {
    "x": ("O", "F", "G", "x"),
    "y": ("O", "F", "H", "y"),
    "z": ("P", "D", "I", "z"),
    "w": ("P", "D", "J", "w"),
}
FILLED = {"owl": ("animal", "bird", "owl"), "wren": ("animal", "bird", "wren"), "fern": ("plant", "fern")}
COMMENTED = GROUPED | {"w": ("b", "w"), "v": ("c", "v")}
OWLS = {"owl": ("bird", "owl"), "wren": ("bird", "wren"), "dog": ("dog",)}
NESTED = {
    "name": "life",
    "children": [
        {
            "name": "animal",
            "children": [{"name": "bird", "children": [{"name": "owl"}, {"name": "wren"}]}, {"name": "dog"}],
        },
        {"name": "plant", "children": [{"name": "fern"}]},
    ],
}
INAT = [
    {
        "id": 5,
        "name": "Corvus corax",
        "common_name": "Raven",
        "supercategory": "Birds",
        "class": "Aves",
        "family": "Corvidae",
        "genus": "Corvus",
        "specific_epithet": "corax",
        "image_dir_name": "5_corax",
    },
    {
        "id": 6,
        "name": "Corvus alba",
        "common_name": "White",
        "supercategory": "Birds",
        "class": "Aves",
        "family": "Corvidae",
        "genus": "Corvus",
        "specific_epithet": "alba",
        "image_dir_name": "6_alba",
    },
    {
        "id": 9,
        "name": "Tyto alba",
        "common_name": "Barn owl",
        "supercategory": "Birds",
        "class": "Aves",
        "family": "Tytonidae",
        "genus": "Tyto",
        "specific_epithet": "alba",
        "image_dir_name": "9_alba",
    },
]
PATHS = "kingdom,class,species\nanimal,bird,owl\nanimal,bird,wren\nanimal,,dog\nplant,NA,fern\n"

READ = [
    ("commas.csv", PATHS, {}, TREE),
    ("semicolons.csv", PATHS.replace(",", ";"), {}, TREE),
    ("excel.csv", "sep=;\r\n" + PATHS.replace(",", ";").replace("\n", "\r\n"), {}, TREE),
    ("pipes.txt", PATHS.replace(",", "|"), {}, TREE),
    ("tabs.tsv", PATHS.replace(",", "\t"), {}, TREE),
    ("tabs.txt", PATHS.replace(",", "\t"), {}, TREE),
    ("mark.csv", "\ufeff" + PATHS, {}, TREE),
    ("bare.csv", PATHS.partition("\n")[2], {}, TREE),
    (
        "pandas.csv",
        ",kingdom,class,species\n0,animal,bird,owl\n1,animal,bird,wren\n2,animal,,dog\n3,plant,,fern\n",
        {},
        TREE,
    ),
    ("up.csv", "species,class,kingdom\nowl,bird,animal\nwren,bird,animal\ndog,-,animal\nfern,nan,plant\n", {}, TREE),
    ("mixed.csv", "class,species,kingdom\nbird,owl,animal\nbird,wren,animal\n,dog,animal\n,fern,plant\n", {}, TREE),
    (
        "joined.csv",
        "id,family,genus,epithet,english\n1,A,g,alba,White\n2,B,k,alba,Pale\n3,B,h,nigra,Black\n",
        {"columns": "family,genus+epithet"},
        {"g alba": ("A", "g alba"), "k alba": ("B", "k alba"), "h nigra": ("B", "h nigra")},
    ),
    ("columns.json", json.dumps({"group": ["a", "a", "b"], "name": ["x", "y", "z"]}), {}, GROUPED),
    (
        "pandas.json",
        json.dumps({"group": {"0": "a", "1": "a", "2": "b"}, "name": {"0": "x", "1": "y", "2": "z"}}),
        {},
        GROUPED,
    ),
    (
        "keyed.json",
        json.dumps({str(i): {"name": n, "parent": p} for i, (n, p) in enumerate(["xa", "ya", "zb"])}),
        {},
        GROUPED,
    ),
    ("table.md", "| group | name |\n|:---|---|\n| a | x |\n| a | y |\n| b | z |\n", {}, GROUPED),
    ("weights.csv", "source,target,weight\nlife,a,1\nlife,b,1\na,x,2\na,y,2\nb,z,1\n", {}, GROUPED),
    ("counts.csv", "group,name,n\na,x,3\na,y,5\nb,z,7\n", {}, GROUPED),
    ("ids.csv", "id,group,name\n7,a,x\n3,a,y\n9,b,z\n", {}, GROUPED),
    ("photos.csv", "file,group,name\n1.jpg,a,x\n2.jpg,a,y\n3.jpg,b,z\n4.jpg,a,x\n", {}, GROUPED),
    ("common.csv", "group,name,common_name\na,x,ex\na,y,why\nb,z,why\n", {}, GROUPED),
    (
        "inat.csv",
        "id,order,family,genus,species,author\n1,O,F,G,s,X\n2,O,F,G,t,X\n3,O,E,H,u,Y\n",
        {},
        {"s": ("O", "F", "G", "s"), "t": ("O", "F", "G", "t"), "u": ("O", "E", "H", "u")},
    ),
    (
        "homonyms.csv",
        "kingdom,genus,species\nAnimalia,Prunella,modularis\nPlantae,Prunella,vulgaris\nPlantae,Rosa,canina\n",
        {},
        {
            "modularis": ("Animalia", "Prunella", "modularis"),
            "vulgaris": ("Plantae", "Prunella", "vulgaris"),
            "canina": ("Plantae", "Rosa", "canina"),
        },
    ),
    ("numbers.csv", "group,class\na,10\na,9\nb,1\n", {}, {"1": ("b", "1"), "9": ("a", "9"), "10": ("a", "10")}),
    ("slashes.csv", "animal/bird/owl\nanimal/bird/wren\nanimal/dog\nplant/fern\n", {}, TREE),
    ("arrows.txt", "animal > bird > owl\nanimal > bird > wren\nanimal > dog\nplant > fern\n", {}, TREE),
    ("class-path.csv", "class,path\nowl,animal/bird\nwren,animal/bird\ndog,animal\nfern,plant\n", {}, TREE),
    (
        "edges.csv",
        "parent,child\nlife,animal\nlife,plant\nanimal,bird\nanimal,dog\nbird,owl\nbird,wren\nplant,fern\n",
        {},
        {k: TREE[k] for k in ("dog", "owl", "wren", "fern")},
    ),
    ("child-first.csv", "owl,bird\nwren,bird\nbird,life\ndog,life\n", {}, OWLS),
    ("lines.txt", "life bird\nlife dog\nbird owl\nbird wren\n", {}, dict(sorted(OWLS.items()))),
    ("lines-up.txt", "bird life\ndog life\nowl bird\nwren bird\n", {}, dict(sorted(OWLS.items()))),
    (
        "numbers.txt",
        "r a\nr b\na 10\na 9\nb 1\nb 2\n",
        {},
        {"1": ("b", "1"), "2": ("b", "2"), "9": ("a", "9"), "10": ("a", "10")},
    ),
    *(
        (
            f"root-{root}.csv",
            f"child,parent\nlife,{root}\nbird,life\ndog,life\nowl,bird\nwren,bird\n",
            {},
            {"dog": ("dog",)} | {k: OWLS[k] for k in ("owl", "wren")},
        )
        for root in ("", "NULL", "None", "nan", "-1", "0", "life")
    ),
    (
        "darwin.csv",
        "taxonID,parentNameUsageID,scientificName,taxonRank\n1,,life,\n2,1,bird,class\n3,1,dog,species\n"
        "4,2,owl,species\n5,2,wren,species\n",
        {},
        {"dog": ("dog",), "owl": OWLS["owl"], "wren": OWLS["wren"]},
    ),
    (
        "ids-bare.csv",
        "10,0,life\n20,10,bird\n30,10,dog\n40,20,owl\n50,20,wren\n",
        {},
        {"dog": ("dog",), "owl": OWLS["owl"], "wren": OWLS["wren"]},
    ),
    (
        "two-others.csv",
        "id,parent,name\n1,,a\n2,,b\n3,1,other\n4,2,other\n5,3,x\n6,3,y\n7,4,z\n",
        {},
        {"x": ("a", "other", "x"), "y": ("a", "other", "y"), "z": ("b", "other", "z")},
    ),
    (
        "ncbi.dmp",
        "1 | 1 | no rank |\n2 | 1 | genus |\n3 | 2 | species |\n4 | 2 | species |\n5 | 1 | species |\n".replace(
            " ", "\t"
        ),
        {},
        {"3": ("2", "3"), "4": ("2", "4"), "5": ("5",)},
    ),
    ("nested.json", json.dumps(NESTED), {}, TREE),
    ("images.json", json.dumps(NESTED).replace("children", "Subcategory").replace("name", "LabelName"), {}, TREE),
    ("own-keys.json", json.dumps(NESTED).replace("children", "kinder").replace("name", "bezeichnung"), {}, TREE),
    (
        "leaves.json",
        json.dumps({"id": "r", "children": [{"id": "a", "children": ["x", "y"]}, {"id": "b", "children": ["z"]}]}),
        {},
        GROUPED,
    ),
    ("dicts.json", '{"animal": {"bird": {"owl": {}, "wren": null}, "dog": {}}, "plant": {"fern": []}}', {}, TREE),
    ("lists.json", '{"animal": {"bird": ["owl", "wren"], "dog": null}, "plant": ["fern"]}', {}, TREE),
    ("children.json", '{"a": ["x", "y"], "b": ["z"]}', {}, GROUPED),
    (
        "records.json",
        '[{"group": "a", "name": "x"}, {"group": "a", "name": "y"}, {"group": "b", "name": "z"}]',
        {},
        GROUPED,
    ),
    (
        "rows.jsonl",
        '{"group": "a", "name": "x"}\n{"group": "a", "name": "y"}\n{"group": "b", "name": "z"}\n',
        {},
        GROUPED,
    ),
    (
        "coco.json",
        json.dumps(
            {
                "images": [],
                "categories": [
                    {"id": 1, "name": "x", "supercategory": "a"},
                    {"id": 2, "name": "y", "supercategory": "a"},
                    {"id": 90, "name": "z", "supercategory": "b"},
                ],
            }
        ),
        {},
        GROUPED,
    ),
    ("inat.json", json.dumps({"categories": INAT}), {}, BIRDS),
    ("paths.json", '{"x": ["a", "x"], "y": ["a", "y"], "z": ["b", "z"]}', {}, GROUPED),
    ("paths-above.json", '{"x": ["a"], "y": ["a"], "z": ["b"]}', {}, GROUPED),
    ("child-parent.json", '{"x": "a", "y": "a", "z": "b", "a": null, "b": null}', {}, GROUPED),
    ("class-group.json", '{"x": "a", "y": "a", "z": "b"}', {}, GROUPED),
    (
        "links.json",
        '{"nodes": [{"id": "r"}, {"id": "a"}, {"id": "b"}, {"id": "x"}, {"id": "y"}, {"id": "z"}], "links": '
        '[{"source": "r", "target": "a"}, {"source": "r", "target": "b"}, {"source": "a", "target": "x"}, '
        '{"source": "a", "target": "y"}, {"source": "b", "target": "z"}]}',
        {},
        GROUPED,
    ),
    ("tree.nwk", "((x:0.1,y:0.2)a:1[c],(z)b)root;", {}, GROUPED),
    (
        "support.nwk",
        "((x,y)95,('z z',w)95);",
        {},
        {"x": ("node 1", "x"), "y": ("node 1", "y"), "z z": ("node 2", "z z"), "w": ("node 2", "w")},
    ),
    ("dag.csv", "parent,child\nr,a\nr,b\na,x\nb,x\na,y\nb,z\n", {"parents": "first"}, GROUPED),
    (
        "dag-long.csv",
        "parent,child\nr,a\nr,b\nb,c\na,x\nc,x\na,y\nb,z\n",
        {"parents": "longest"},
        {"x": ("b", "c", "x"), "y": ("a", "y"), "z": ("b", "z")},
    ),
    ("flat.csv", "class\nx\ny\n", {}, {"x": ("x",), "y": ("y",)}),
    *(  # as many genera as classes, and one genus in two families: the words of ranks say the order, but for "class"
        (
            "labels.csv",
            "\n".join(",".join(row.split(",")[i] for i in places) for row in ("order,family,genus,class", *rows)),
            {},
            paths,
        )
        for rows, paths in (
            (["O,F,G,x", "O,F,H,y", "P,D,I,z", "P,D,J,w"], RANKED),
            (["O,F,G,x", "O,F,H,y", "P,D,I,z", "P,D,J,w", "P,E,J,v"], RANKED | {"v": ("P", "E", "J", "v")}),
        )
        for places in ((0, 1, 2, 3), (3, 2, 1, 0), (3, 0, 1, 2), (2, 3, 0, 1))
    ),
    ("label-last.csv", "order,family,genus,class\nO,F,G,x\nO,F,H,y\nO,E,I,z\nP,D,J,w\nP,D,J,v\n", {}, LABELS),
    ("product.txt", "# v1\n1 - a\n2 - a > x\n3 - a > y\n4 - b\n5 - b > z\n", {"inner": "drop"}, GROUPED),
    ("shop.txt", "gid://s/1 : a > x\ngid://s/2 : a > y\ngid://s/3 : b > z\n", {}, GROUPED),
    (
        "panoptic.json",
        json.dumps(
            [
                {"supercategory": group, "isthing": int(name == "x"), "id": i, "name": name}
                for i, (name, (group, _)) in enumerate(GROUPED.items())
            ]
        ),
        {},
        GROUPED,
    ),
    (
        "cityscapes.csv",
        'name,id,trainId,category,catId,hasInstances,ignoreInEval,color\nx,7,0,a,1,False,False,"(128, 64,128)"\n'
        'y,8,1,a,1,True,False,"(244, 35,232)"\nz,9,2,b,2,False,True,"(0, 0, 0)"\n',
        {},
        GROUPED,
    ),
    ("flag.csv", "name,category,ignoreInEval\nx,a,False\ny,a,False\nz,b,False\n", {}, GROUPED),
    ("seen.csv", "name,group,seen\nx,a,seen\ny,a,unseen\nz,b,seen\n", {}, GROUPED),
    ("isic.csv", "isic_id,diagnosis_1,diagnosis_2\nI_1,a,x\nI_2,a,y\nI_3,b,z\nI_4,b,z\n", {}, GROUPED),
    ("merged.csv", "order,species\na,x\n,y\nb,z\n", {"fill": True}, GROUPED),
    ("merged3.csv", "kingdom,class,species\nanimal,bird,owl\n,,wren\nplant,,fern\n", {"fill": True}, FILLED),
    ("chosen.csv", "b,c,a\nx,f,a\ny,g,a\nz,h,b\n", {"columns": "a,b"}, GROUPED),
    ("numbers3.csv", "group,name,rang\na,x,3\na,y,4\nb,z,3\n", {}, GROUPED),
    ("comment.csv", "# group,name\na,x\na,y\nb,z\nb,w\nc,v\n", {"columns": "1,2"}, COMMENTED),
    (
        "latin.csv",
        "group,name\na,\u00e9\na,y\n".encode("latin-1"),
        {"encoding": "latin-1"},
        {"\u00e9": ("a", "\u00e9"), "y": ("a", "y")},
    ),
]


def write(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(("name", "content", "options", "paths"), READ, ids=[case[0] for case in READ])
def test_a_form_is_the_tree_that_it_means(tmp_path, name, content, options, paths):
    path = write(tmp_path, name, content)
    reading = read_tree(path, TreeOptions(**options))
    assert list(reading.paths.items()) == list(paths.items()), reading.about
    assert 3 <= len(reading.about) <= 5
    assert Hierarchy.read(path, **options).digest() == Hierarchy.from_paths(paths).digest()


def test_a_form_is_the_same_tree_at_every_door(cli, tmp_path):
    """`data tree`, `score` and `data new` mean what the form means."""
    rng = np.random.default_rng(0)
    for number, (name, content, chosen, paths) in enumerate(READ):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, name, content)
        write(folder, "meant.csv", canonical_text(paths))
        options = [word for key, value in chosen.items() for word in (f"--{key}", value) if word is not True]
        cli(folder, "data", "tree", name, *options, "--output", "read.csv").ok()
        levels = read_tree(folder / name, TreeOptions(**chosen)).levels
        assert (folder / "read.csv").read_text() == canonical_text(paths, levels), name

        classes = np.array(list(paths))
        targets = rng.permutation(np.repeat(classes, 3))
        scores = rng.normal(size=(len(targets), len(classes)))
        np.savez(folder / "scores.npz", scores=scores, names=classes, targets=targets)
        metrics = []
        others = set(chosen) - {"columns", "form"}  # which only `data tree` takes: it writes a plain table
        direct = ("read.csv", []) if others else (name, options)
        for tree, more in (("meant.csv", []), direct):
            done = cli(folder, "score", "scores.npz", "--tree", tree, *more, "--resamples", "0", "--json").ok()
            metrics.append(json.loads(done.out)["metrics"])
        assert metrics[0] == metrics[1], name

        splits = {split: scores.astype(np.float32) for split in ("train", "val", "test")}
        np.savez(folder / "features.npz", **splits, **{f"{split}_labels": targets for split in splits})
        cli(folder, "data", "new", "mine", "--features", "features.npz", "--tree", direct[0], *direct[1]).ok()
        assert list(open_source(load_recipe(str(folder / "mine.toml"))).paths.items()) == list(paths.items()), name


FAULTS = [
    (
        "epithets.csv",
        "family,genus,epithet\nA,g,alba\nB,h,alba\n",
        "line 3: duplicate class 'alba': B > h > alba, and before A > g > alba (line 2); join them to one name with "
        "--columns family,genus,genus+epithet;",
    ),
    ("epithets-bare.csv", "A,g,alba\nB,h,alba\n", "--columns 3,2,1"),
    ("common.csv", "kingdom,name,nickname\na,x,ex\na,y,why\nb,z,zed\n", "--columns"),
    (
        "forest.csv",
        "animal,dog\nanimal,cat\nplant,fern\ndog,poodle\ndog,pug\n",
        "as edges (--form edges) or as paths (--form paths)",
    ),
    ("levels.csv", "1,1\n1,2\n2,3\n2,4\n3,5\n", "as edges (--form edges) or as paths (--form paths)"),
    ("from0.csv", "coarse,fine\n0,0\n0,1\n1,2\n1,10\n", "as edges (--form edges) or as paths (--form paths)"),
    ("bare0.csv", "0,0\n0,1\n1,2\n1,10\n", "as edges (--form edges) or as paths (--form paths)"),
    (
        "dag.csv",
        "parent,child\nr,a\nr,b\na,x\nb,x\na,y\nb,z\n",
        "node 'x' has several parents: 'a' and 'b'; --parents first, shortest or longest",
    ),
    (
        "dag.json",
        '{"name": "r", "children": [{"name": "a", "children": ["x", "y"]}, {"name": "b", "children": ["x", "z"]}]}',
        "node 'x' has several parents",
    ),
    (
        "inner.csv",
        "group,class\na,\na,x\na,y\nb,z\n",
        "class 'a' is also a parent; --inner leaf makes a leaf 'a (unspecified)' below it",
    ),
    ("latin.csv", "group,name\na,\u00e9\na,y\n".encode("latin-1"), "try --encoding cp1252"),
    ("utf16.csv", "group,name\na,x\na,y\n".encode("utf-16"), "try --encoding utf-16"),
    (
        "words.txt",
        "animal barn owl\nanimal dog\n",
        "line 1 is not 'parent child': 'animal barn owl'; put a tab or a comma between",
    ),
    ("names.json", '{"0": "apple", "1": "fish", "2": "baby"}', "a list of names {id: name}, not a tree"),
    ("either.json", '{"x": ["a"], "y": ["b"]}', "(--form edges) or {class: path} (--form paths)"),
    ("sheet.xlsx", b"PK", "save the sheet as .csv"),
    ("tree.pkl", b"\x80", "pickles can run any code"),
    ("broken.json", "{", "it is not JSON"),
    ("number.json", "7", "is no tree"),
    ("brackets.nwk", "((a,b)", "it is not Newick"),
    ("cycle.csv", "parent,child\nr,a\na,b\nb,c\nc,b\nr,d\n", "in a cycle"),
    ("empty.json", "[]", "it is empty"),
    ("twice.csv", "group,class\na,x\na,x\na,y\n", "line 3: duplicate class 'x'"),
]


@pytest.mark.parametrize(("name", "content", "message"), FAULTS, ids=[case[0] for case in FAULTS])
def test_a_fault_names_the_way_out(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=r".*") as error:
        read_tree(write(tmp_path, name, content))
    assert str(error.value).startswith(f"{name}: ") and message in as_options(error.value)
    assert "--" not in str(error.value)  # it names arguments of Python


PROPOSED = [  # what could be read in several ways: the option, and the tree that it gives
    ("moved.csv", "b,c,a\nbird,owl,animal\nape,man,animal\nherb,dill,plant\n", "--columns 1,2,3"),
    ("other.csv", "group,part,class\na,other,x\na,p,y\nb,other,z\nb,q,w\n", "--columns group,part,class"),
    ("levels.csv", "1,1,1\n1,1,2\n1,2,3\n2,3,4\n", "--columns 1,2,3"),
    ("inner.csv", "group,kind,class\na,,\na,k,x\na,k,y\nb,,z\n", "--columns"),
    ("ends.csv", "a,x\nb,y\nc,z\n", "--columns a,x"),
    ("flag.csv", "native,group,name\nyes,a,x\nyes,a,y\nno,b,z\n", None),
    ("two.csv", "habitat,group,name\nland,a,x\nland,a,y\nsea,b,z\nland,c,w\n", "--columns habitat,group,name"),
    ("codes.csv", "category,code\na,0101.21\na,0101.29\nb,0102.10\n", "--columns category,code"),
    ("icd.csv", "chapter,code\na,250.01\na,250.02\nb,251.10\nc,252.10\n", "--columns chapter,code"),
    ("merged.csv", "order,species\nOwls,tawny\n,eagle\nSwans,mute\n", "--fill"),
    ("places.txt", "/a/airfield 0\n/a/alley 1\n/b/bar 2\n", "names with numbers"),
    ("product.txt", "# v1\n1 - a\n2 - a > x\n3 - a > y\n4 - b\n5 - b > z\n", "--inner drop"),
    ("epithets-bare.csv", "A,g,alba\nB,h,alba\n", "--columns"),
    ("numbers-first.csv", "3,2,1\nowl,bird,animal\nwren,bird,animal\noak,tree,plant\n", "--columns 1,2,3"),
    ("bullets.md", "- Animals\n  - Birds\n    - Owl\n- Plants\n", "a/b/c"),
    ("outline.txt", "Wild animals\n  Big birds\n    Snowy owl\n    Mute swan\n", "a/b/c"),
    ("index.json", '{"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"]}', "--form edges"),
    ("numbers.json", '{"0": 4, "1": 1, "2": 14, "3": 8, "4": 4}', "--form paths"),
    ("members.json", '{"0": [4, 30, 55], "1": [1, 32, 67]}', "--form edges"),
    ("pairs.json", '{"edges": [["owl", "bird"], ["wren", "bird"]]}', "lists in a list"),
    ("about.json", '{"version": "1.0", "tree": {"a": ["x", "y"], "b": ["z"]}}', "leave it out"),
    ("about2.json", '{"a": {"n": 2, "members": ["x", "y"]}, "b": {"c": ["z"]}}', "leave it out"),
    (
        "by-name.json",
        '{"x": {"parent": "a", "id": 1}, "y": {"parent": "a", "id": 2}, "z": {"parent": "b", "id": 3}}',
        "--columns parent,name",
    ),
]


@pytest.mark.parametrize(("name", "content", "option"), PROPOSED, ids=[case[0] for case in PROPOSED])
def test_what_is_not_declared_is_proposed(tmp_path, name, content, option):
    path = write(tmp_path, name, content)
    if option is None:  # a flag by its name
        assert list(read_tree(path).paths.items()) == list(GROUPED.items())
        return
    with pytest.raises(ValueError, match=r".*") as error:
        read_tree(path)
    text = as_options(error.value)
    assert option in text
    proposed = [line.split()[1] for line in text.splitlines()[1:] if "--columns" in line]
    for columns in proposed:  # each gives a tree
        assert read_tree(path, TreeOptions(columns=columns, inner="leaf")).paths


HOSTILE = {
    "one endless row.csv": "a,b\n" + "," * 300_000,
    "many columns.csv": ",".join(f"c{i}" for i in range(60))
    + "\n"
    + "".join(",".join(f"v{(i * j) % 97}x" for i in range(60)) + "\n" for j in range(300)),
    "twelve columns.csv": ",".join(f"c{i}" for i in range(12))
    + "\n"
    + "".join(",".join(f"v{(i * j) % 97}x" for i in range(12)) + "\n" for j in range(20_000)),
    "many cells.csv": ("," * 250 + "\n") * 20_000,
    "many rows.txt": "a b\n" * 5_000_000,
    "deep objects.json": '{"a": ' * 100_000 + "{}" + "}" * 100_000,
    "deep lists.json": "[" * 100_000 + "]" * 100_000,
    "deep children.json": '{"name": "a", "children": [' * 400 + '{"name": "b"}' + "]}" * 400,
    "deep brackets.nwk": "(" * 100_000 + "a" + ")" * 100_000 + ";",
    "a long path.csv": "class\n" + "a/" * 1_000_000 + "b\n" + "c/d\n",
    "a chain.csv": "parent,child\n" + "".join(f"{i},{i + 1}\n" for i in range(100_000)),
    "many columns.json": json.dumps([{f"k{i}": "x" for i in range(1000)}] * 10),
    "a bomb.parquet": b"PAR1" + b"\0" * 1000 + b"PAR1",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("parents", ["error", "longest"])
def test_hostile_trees_fail_soon(tmp_path, name, parents):
    path, began = write(tmp_path, name, HOSTILE[name]), time.process_time()
    with pytest.raises(ValueError, match=r"."):
        read_tree(path, TreeOptions(parents=parents))
    assert time.process_time() - began < 20


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.just(2**64) | st.floats() | st.text("ab/", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["nodes", "links", "categories", "children", "name", "id", "parent", "source", "target", "a"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=9,
)


@given(JSON.filter(lambda content: not isinstance(content, str)))
@example({"nodes": [1, 2], "links": [3]})
@example({"categories": [{"id": 1}, 5]})
@example({"children": [{"name": "a", "children": 3}]})
@settings(max_examples=150, deadline=None)
def test_any_json_is_a_tree_or_an_error(content):
    try:
        assert Hierarchy.read(content).num_classes > 1
    except ValueError as error:
        assert len(str(error).splitlines()[0]) < 1000
