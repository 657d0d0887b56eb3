"""Small archives in the official layouts of the datasets, drawn at random."""

import csv
import io
import pickle
import tarfile
import zipfile
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

TREES = Path(__file__).resolve().parents[2] / "benchmarks/hierarchies"


def jpeg(rng, width, height):
    buffer = io.BytesIO()
    pixels = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3), dtype=np.uint8)
    Image.fromarray(pixels).resize((width, height)).save(buffer, "JPEG")
    return buffer.getvalue()


def classes_of(tree):
    with (TREES / f"{tree}.csv").open(newline="", encoding="utf-8") as file:
        return [[cell for cell in row if cell] for row in csv.reader(file)][1:]


def tiny_imagenet(path, *, train_per_class=10, test_per_class=1, change=lambda name, content: content):
    """Write the zip; `change` may replace a member's bytes, or drop it with None."""
    rng = np.random.default_rng(0)
    wnids = [row[-1] for row in classes_of("tiny-imagenet")]
    image = jpeg(rng, 64, 64)
    grey = io.BytesIO()
    Image.new("L", (64, 64), 128).save(grey, "JPEG")
    members = {"wnids.txt": "\n".join(wnids[::-1]).encode(), "words.txt": b""}
    lines = []
    for wnid in wnids:
        members[f"train/{wnid}/{wnid}_boxes.txt"] = b""
        for i in range(train_per_class):
            members[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = grey.getvalue() if i == 0 else image
    for i, wnid in enumerate(wnids * test_per_class):
        members[f"val/images/val_{i}.JPEG"] = image
        lines.append(f"val_{i}.JPEG\t{wnid}\t0\t0\t62\t62")
    members["val/val_annotations.txt"] = "\n".join(lines).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            if (content := change(name, content)) is not None:
                archive.writestr(f"tiny-imagenet-200/{name}", content)
    return path


def cifar100(folder, *, train_per_class=4, test_per_class=1):
    """Write `cifar-100-python` with all classes."""
    rows = classes_of("cifar100")
    fine = [row[-1] for row in rows]
    coarse = sorted({row[-2] for row in rows})
    rng = np.random.default_rng(0)
    (folder / "cifar-100-python").mkdir(parents=True)
    for name, per_class in (("train", train_per_class), ("test", test_per_class)):
        labels = np.tile(np.arange(100), per_class)
        content = {
            "data": rng.integers(0, 256, (len(labels), 3072), dtype=np.uint8),
            "fine_labels": labels.tolist(),
            "coarse_labels": [coarse.index(rows[label][-2]) for label in labels],
            "filenames": [f"{i}.png" for i in range(len(labels))],
            "batch_label": name,
        }
        (folder / "cifar-100-python" / name).write_bytes(pickle.dumps(content, protocol=2))
    meta = {"fine_label_names": fine, "coarse_label_names": coarse}
    (folder / "cifar-100-python/meta").write_bytes(pickle.dumps(meta, protocol=2))
    return folder


def cifar100_pictures(folder, *, train_per_class=4, test_per_class=1):
    """Write all classes as PNG files, in `train|test/<class>/`."""
    rng = np.random.default_rng(0)
    for row in classes_of("cifar100"):
        for split, per_class in (("train", train_per_class), ("test", test_per_class)):
            place = folder / split / row[-1]
            place.mkdir(parents=True)
            for number in range(per_class):
                pixels = rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{row[-1]}_s_{number:06}.png")
    return folder


def grocery(folder, *, per_class=2):
    """Write the folder `dataset` of the repository: lists, and photographs of any size."""
    rng = np.random.default_rng(0)
    rows = classes_of("grocery")
    coarse = list(dict.fromkeys(row[1] for row in rows))
    for split in ("train", "val", "test"):
        lines = []
        for label, row in enumerate(rows):
            for number in range(per_class):
                name = f"{split}/{'/'.join(row)}/{row[-1]}_{number:03}.jpg"
                path = folder / "dataset" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(jpeg(rng, 32, 40))
                lines.append(f"{name}, {label}, {coarse.index(row[1])}")
        (folder / "dataset" / f"{split}.txt").write_text("\n".join([*lines, ""]))
    return folder


def cub(folder, *, part=False, per_class=4):
    """Write CUB_200_2011, of each class two images for test; `part` has the lists of the public part of 100 classes."""
    rng = np.random.default_rng(0)
    place = folder / ("bird_dataset" if part else "CUB_200_2011")
    lists = {name: [] for name in ("classes", "images", "image_class_labels", "train_test_split")}
    for label, row in enumerate(classes_of("cub100" if part else "cub"), 0 if part else 1):
        name = row[-1] if part else f"{label:03}.{row[-1]}"
        lists["classes"].append((label, name))
        (place / "images" / name).mkdir(parents=True)
        for number in range(per_class):
            file = f"{name}/{number:04}.jpg"
            (place / "images" / file).write_bytes(jpeg(rng, 32, 40))
            image = len(lists["images"])
            is_training = number < per_class - 2
            lists["images"].append((image, file))
            lists["image_class_labels"].append((image, label))
            lists["train_test_split"].append((image, int(is_training != part)))
    for name, rows in lists.items():
        separator = ", " if part else " "
        (place / f"{name}.txt").write_text("".join(f"{number}{separator}{value}\n" for number, value in rows))
    return place


AIRCRAFT = {  # {variant: (family, manufacturer)}
    "707-320": ("Boeing 707", "Boeing"),
    "747-100": ("Boeing 747", "Boeing"),
    "747-200": ("Boeing 747", "Boeing"),
    "DHC-1": ("DHC-1", "de Havilland"),
    "F/A-18": ("F/A-18", "McDonnell Douglas"),
}


def aircraft_of(file):
    """All variants of a CSV with the columns manufacturer, family, variant, in any order."""
    with Path(file).open(newline="", encoding="utf-8") as rows:
        return {row["variant"]: (row["family"], row["manufacturer"]) for row in csv.DictReader(rows)}


def fgvc(folder, *, per_class=2, aircraft=None):
    """Write `fgvc-aircraft-2013b`, by default with five variants; every image ends in a white banner of 20 rows."""
    aircraft = aircraft or AIRCRAFT
    data = folder / "fgvc-aircraft-2013b/data"
    (data / "images").mkdir(parents=True)
    rng = np.random.default_rng(0)
    levels = {"variant": sorted(aircraft)}
    levels["family"] = sorted({family for family, _ in aircraft.values()})
    levels["manufacturer"] = sorted({maker for _, maker in aircraft.values()})
    for name, plural in (("variant", "variants"), ("family", "families"), ("manufacturer", "manufacturers")):
        (data / f"{plural}.txt").write_text("\n".join(levels[name]) + "\n", encoding="utf-8")
    number = 0
    for split in ("train", "val", "test"):
        lines = {"variant": [], "family": [], "manufacturer": []}
        for variant, (family, maker) in aircraft.items():
            for _ in range(per_class):
                image = Image.open(io.BytesIO(jpeg(rng, 90, 80))).convert("RGB")
                image.paste((255, 255, 255), (0, 60, 90, 80))
                image.save(data / f"images/{number:07d}.jpg", quality=95)
                for level, name in (("variant", variant), ("family", family), ("manufacturer", maker)):
                    lines[level].append(f"{number:07d} {name}")
                number += 1
        for level, rows in lines.items():
            (data / f"images_{level}_{split}.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


def split_lists(path, folder, listed):
    """Write `<folder>/{train,val,test}/<class>.txt` as a zip: {split: {class: [image, ...]}}."""
    with zipfile.ZipFile(path, "w") as archive:
        for split, classes in listed.items():
            archive.writestr(f"{folder}/{split}/", "")
            for name, images in classes.items():
                archive.writestr(f"{folder}/{split}/{name}.txt", "".join(f"{image}\n" for image in images))
    return path


def inat19_lists(path, classes, per_split):
    """Split lists over all classes, most of them without images; return {image: class}."""
    listed = {split: {name: [] for name in classes} for split in per_split}
    class_of = {}
    for split, num in per_split.items():
        for i in range(num):
            name = classes[(i * 37) % len(classes)]
            image = f"{zlib.crc32(f'{split} {i}'.encode()):08x}" * 4 + ".jpg"
            listed[split][name].append(image)
            class_of[image] = name
    split_lists(path, "splits_inat19", listed)
    return class_of


def inat19_archive(path, class_of, *, size=(50, 40), change=lambda name, content: content):
    """Write the archive, train_val2019/<supercategory>/<category>/<hash>.jpg; `change` may drop images with None."""
    rng = np.random.default_rng(0)
    groups = ["Amphibians", "Birds", "Fungi", "Insects", "Plants", "Reptiles"]
    with tarfile.open(path, "w:gz") as tar:
        for image, name in sorted(class_of.items()):
            category = int(name.removeprefix("nat"))
            if (content := change(image, jpeg(rng, *size))) is not None:
                add_file(tar, f"train_val2019/{groups[category % 6]}/{category}/{image}", content)
    return path


def ilsvrc(folder, names, *, change=lambda name, content: content):
    """Write train/<wnid>/<wnid>_<number>.JPEG and val/ILSVRC2012_val_<number>.JPEG."""
    rng = np.random.default_rng(0)
    for name in names:
        place = folder / "val" if name.startswith("ILSVRC2012_val") else folder / "train" / name.partition("_")[0]
        place.mkdir(parents=True, exist_ok=True)
        if (content := change(name, jpeg(rng, 60, 40))) is not None:
            (place / name).write_bytes(content)
    return folder


def imagenet1k(folder, *, flat=False, archives=False, per_class=3, change=lambda name, content: content):
    """Write ILSVRC2012 with all classes, a test image each: folders, val with or without classes, or the tars."""
    from scipy.io import savemat

    wnids = [row[-1] for row in classes_of("imagenet1k")]
    image = jpeg(np.random.default_rng(0), 16, 12)
    shuffled = np.random.default_rng(1).permutation(1000)  # its own numbers of classes, from 1
    train = {wnid: [f"{wnid}_{number}.JPEG" for number in (7, 12, 100)[:per_class]] for wnid in wnids}
    test = {f"ILSVRC2012_val_{row + 1:08}.JPEG": wnids[(row * 7) % 1000] for row in range(1000)}
    folder.mkdir(parents=True, exist_ok=True)
    if archives:
        with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as tar:
            for wnid, names in train.items():
                inner = io.BytesIO()
                with tarfile.open(fileobj=inner, mode="w") as images:
                    for name in names:
                        if (content := change(name, image)) is not None:
                            add_file(images, name, content)
                add_file(tar, f"{wnid}.tar", inner.getvalue())
        with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as tar:
            for name in test:
                add_file(tar, name, image)
    else:
        for wnid, names in train.items():
            (folder / "train" / wnid).mkdir(parents=True)
            for name in names:
                if (content := change(name, image)) is not None:
                    (folder / "train" / wnid / name).write_bytes(content)
        for name, wnid in test.items():
            place = folder / "val" if flat else folder / "val" / wnid
            place.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(image)
    if archives or flat:
        number = {wnid: int(place) + 1 for wnid, place in zip(wnids, shuffled, strict=True)}
        kinds = [("ILSVRC2012_ID", "i4"), ("WNID", "O"), ("num_children", "i4")]
        leaves = [(number[wnid], wnid, 0) for wnid in wnids]
        meta = io.BytesIO()
        savemat(meta, {"synsets": np.array([*leaves, (1001, "n00001740", 2)], dtype=kinds)})
        truth = "".join(f"{number[wnid]}\n" for wnid in test.values())
        with tarfile.open(folder / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as tar:
            add_file(tar, "ILSVRC2012_devkit_t12/data/meta.mat", meta.getvalue())
            name = "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt"
            add_file(tar, name, truth.encode())
    return folder


def add_file(tar, name, content):
    """Add a member of the given content."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


BIRDS = {  # {species: its path}, of two lengths
    "barn owl": ("owls", "barn owls", "barn owl"),
    "tawny owl": ("owls", "true owls", "tawny owl"),
    "eagle owl": ("owls", "true owls", "eagle owl"),
    "mute swan": ("waterfowl", "mute swan"),
    "mallard": ("waterfowl", "ducks", "mallard"),
    "wren": ("wren",),
}


def birds(folder, *, per_class=8, root="images"):
    """Write a folder per species with images of several sizes, and taxonomy.csv."""
    rng = np.random.default_rng(0)
    for name in BIRDS:
        place = folder / root / name
        place.mkdir(parents=True)
        for i in range(per_class):
            size = rng.integers(20, 60, 2)
            (place / f"{i}.jpg").write_bytes(jpeg(rng, *map(int, size)))
    lines = ["order,family,species", *(",".join(path) for path in BIRDS.values())]
    (folder / "taxonomy.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def features(folder, *, per_class=(20, 4, 8), channels=12):
    """Write features.npz, vectors around a mean per species in classes' order of the tree, and taxonomy.csv."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    means, arrays = rng.normal(size=(len(BIRDS), channels)), {}
    for split, num in zip(("train", "val", "test"), per_class, strict=True):
        labels = np.tile(np.arange(len(BIRDS)), num)
        arrays[split] = (means[labels] + rng.normal(size=(len(labels), channels))).astype(np.float32)
        arrays[f"{split}_labels"] = labels
    np.savez(folder / "features.npz", **arrays, classes=np.array(list(BIRDS)))
    lines = ["order,family,species", *(",".join(path) for path in BIRDS.values())]
    (folder / "taxonomy.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def extracted(archive, folder):
    """Unpack a tar archive of these; return the folder."""
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder
