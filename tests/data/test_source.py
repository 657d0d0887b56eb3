"""Archives and pickles made to harm: refused in one line, in bounded time and memory, and nothing written elsewhere."""

import gzip
import io
import os
import pickle
import signal
import struct
import tarfile
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hierbench.data.datasets.fgvc import load_image
from hierbench.data.datasets.image_finder import Locator
from hierbench.data.image import UnreadableImageError
from hierbench.data.prepare import prepare
from hierbench.data.source import unpack
from hierbench.utils.archives import ARCHIVE_ERRORS, zip_member
from hierbench.utils.errors import UserError
from tests.support.crafted import Marker

SIZE = (4, 4)


@pytest.fixture(autouse=True)
def in_time():
    """A hang is an error after a minute."""

    def alarm(*_):
        raise AssertionError("no answer within a minute")

    before = signal.signal(signal.SIGALRM, alarm)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def header(name, size=0, kind=tarfile.REGTYPE, link="", attributes=None):
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname, member.pax_headers = size, kind, link, attributes or {}
    return member


def raw(member, content=b"", form=tarfile.GNU_FORMAT):
    """A header, whose size may be wrong, and its content."""
    return member.tobuf(form) + content + b"\0" * (-len(content) % 512)


def pieces(path, names=("a.jpg",)):
    """Load all that an archive or folder gives; return how many images can be read."""
    num_read = 0
    for piece in Locator({"train": list(names)}, SIZE).pieces(path):
        try:
            num_read += piece.load().shape == (1, 3, *SIZE)
        except UnreadableImageError:
            pass
    return num_read


@given(st.data())
def test_damaged_archives_of_every_sort(targets, tmp_path_factory, data):
    """Right archives, changed at random places; the target compares the folder before and after."""
    content = bytearray(data.draw(st.sampled_from(targets.seeds("archives"))))
    for place, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(content) - 1), st.integers(0, 255)), max_size=6)
    ):
        content[place] = byte
    cut = data.draw(st.none() | st.integers(0, len(content)))
    targets.archives(bytes(content[:cut]), tmp_path_factory.mktemp("fuzz"))


@given(st.binary(max_size=600), st.integers(0, 7))
def test_bytes_that_are_not_an_archive(targets, tmp_path_factory, content, sort):
    targets.archives(bytes([sort]) + content, tmp_path_factory.mktemp("fuzz"))


# Tar archives

ODD = [
    header("../out", 1),
    header("in/../../out", 1),
    header("link", kind=tarfile.SYMTYPE, link="../out"),
    header("inner", kind=tarfile.SYMTYPE, link="a"),
    header("hard", kind=tarfile.LNKTYPE, link="/etc/passwd"),
    header("pipe", kind=tarfile.FIFOTYPE),
    header("device", kind=tarfile.CHRTYPE),
    header("disk", kind=tarfile.BLKTYPE),
]


@pytest.mark.parametrize("member", ODD, ids=lambda member: member.name)
@pytest.mark.parametrize("compressed", [False, True])
def test_an_archive_with_an_unexpected_member_is_not_unpacked(targets, tmp_path, member, compressed):
    (tmp_path / "given").write_bytes(targets.tar_of([("a", b"1"), (member, b"2")], compressed))
    with pytest.raises(UserError, match="given is not a complete tar archive"):
        unpack(tmp_path / "given", tmp_path / "below/target")
    assert not list((tmp_path / "below/target").iterdir())
    assert {entry.name for entry in tmp_path.rglob("*")} == {"given", "below", "target"}


def test_an_absolute_name_is_one_below_the_folder_and_a_link_is_not_read_through(targets, tmp_path):
    (tmp_path / "given").write_bytes(targets.tar_of([("/etc/out", b"1")]))
    unpack(tmp_path / "given", tmp_path / "target")
    assert (tmp_path / "target/etc/out").read_bytes() == b"1"
    (tmp_path / "secret.jpg").write_bytes(targets.image_of())
    member = header("a.jpg", kind=tarfile.SYMTYPE, link=str(tmp_path / "secret.jpg"))
    (tmp_path / "given.tar").write_bytes(targets.tar_of([(member, b"")]))
    assert pieces(tmp_path / "given.tar") == 0


def sparse(**attributes):
    """A member that says in its attributes that it is sparse."""
    names = {name.replace("_", "."): value for name, value in attributes.items()}
    return raw(header("a.jpg", 1024, attributes=names), b"9999999\n" + b"0\n" * 508, tarfile.PAX_FORMAT)


def negative():
    block = bytearray(raw(header("a.jpg", 512)))
    block[124:136] = b"\xff" * 12  # minus one, in base 256
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    return bytes(block)


METADATA = {"long name": tarfile.GNUTYPE_LONGNAME, "long link": tarfile.GNUTYPE_LONGLINK}
METADATA |= {"attributes": tarfile.XHDTYPE, "global attributes": tarfile.XGLTYPE}
TARS = {
    **{
        f"gigabytes of {name}": (raw(header("x", 8 << 30, kind)) + b"\0" * (1 << 20), "a header has more than 4096 by")
        for name, kind in METADATA.items()
    },
    # Each long name makes tarfile call itself for the header that follows.
    "headers without end": (raw(header("x", 2, tarfile.GNUTYPE_LONGNAME), b"y\0") * 3000, "truncated or dama|complete"),
    "old sparse": (raw(header("a.jpg", 512, tarfile.GNUTYPE_SPARSE), b"1"), "a member is sparse"),
    "sparse 0.0": (sparse(GNU_sparse_size="9"), "a member is sparse"),
    "sparse 0.1": (sparse(GNU_sparse_map="0,9"), "a member is sparse"),
    "sparse 1.0": (sparse(GNU_sparse_major="1", GNU_sparse_minor="0"), "a member is sparse"),
    "a negative size": (negative(), "negative size"),
}


@pytest.mark.parametrize("case", TARS)
def test_a_tar_that_needs_too_much_memory(tmp_path, little_memory, case):
    content, message = TARS[case]
    with gzip.open(tmp_path / "given.tar.gz", "wb", 1) as file:
        file.write(content + b"\0" * 2048)
    for read in (pieces, lambda path: unpack(path, tmp_path / "target")):
        with pytest.raises(UserError, match=message):
            read(tmp_path / "given.tar.gz")


def test_an_archive_larger_than_the_disk_is_not_unpacked(targets, tmp_path):
    with gzip.open(tmp_path / "given", "wb") as file:
        file.write(raw(header("first", 1), b"1") + raw(header("other", 40 << 30)))
    with pytest.raises(UserError, match="it holds more than 8 GiB"):
        unpack(tmp_path / "given", tmp_path / "target")
    assert not list((tmp_path / "target").iterdir())


def test_archives_in_archives_are_followed_so_far(targets, tmp_path):
    content = targets.tar_of([("a.jpg", targets.image_of())])
    for depth in range(5):
        (tmp_path / "given.tar").write_bytes(content)
        assert pieces(tmp_path / "given.tar") == (depth < 4)
        content = targets.tar_of([("in.tar", content)])


def test_a_pipe_does_not_hold_up(tmp_path, miniatures):
    os.mkfifo(tmp_path / "b.tar")
    with pytest.raises(OSError, match="not a regular file"):
        pieces(tmp_path)
    os.mkfifo(tmp_path / "a.jpg")
    assert pieces(tmp_path) == 0
    with pytest.raises(UserError, match="no folder or archive"):
        pieces(tmp_path / "b.tar")
    with pytest.raises(UnreadableImageError, match="not a regular file"):
        load_image(tmp_path / "a.jpg")
    source = miniatures.fgvc(tmp_path / "source", per_class=1)
    for name in ("images/0000000.jpg", "variants.txt", "images_variant_train.txt"):
        (source / "fgvc-aircraft-2013b/data" / name).unlink()
        os.mkfifo(source / "fgvc-aircraft-2013b/data" / name)
        with pytest.raises(UserError, match=r"no file|not a regular file"):
            prepare("fgvc", tmp_path / "data", source)


@pytest.mark.parametrize("image", ["../../../../../etc/passwd", "", "x\0y"])
def test_an_annotation_that_names_a_file_elsewhere(tmp_path, miniatures, image):
    source = miniatures.fgvc(tmp_path / "source", per_class=1)
    for path in (source / "fgvc-aircraft-2013b/data").glob("images_*_train.txt"):
        path.write_text(f"{image} {path.read_text().split(' ', 1)[1]}")
    with pytest.raises(UserError, match="a line is not 'image name'"):
        prepare("fgvc", tmp_path / "data", source)


# Zip files


def zipped(content=b"\0" * 5000, kind=zipfile.ZIP_DEFLATED, says=None):
    """A zip with a member of some content, which may say another size."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", kind) as file:
        file.writestr("a", content)
    content = bytearray(buffer.getvalue())
    if says is not None:
        place = content.index(b"PK\1\2") + 24
        content[place : place + 4] = struct.pack("<I", says)
    return bytes(content)


ZIPS = {
    "a bomb": zipped(b"\0" * (8 << 20)),
    **{f"{says} bytes": zipped(says=says) for says in (10, 1000, 0xFFFFFFF0)},
    "bzip2": zipped(kind=zipfile.ZIP_BZIP2),
    "lzma": zipped(kind=zipfile.ZIP_LZMA),
    "half": zipped()[:-30],
}


@pytest.mark.parametrize("case", ZIPS)
def test_a_zip_that_needs_too_much_memory(tmp_path, little_memory, case):
    (tmp_path / "given.zip").write_bytes(ZIPS[case])
    with pytest.raises(ARCHIVE_ERRORS):
        zip_member(zipfile.ZipFile(tmp_path / "given.zip"), "a", 5000)
    (tmp_path / "given.zip").write_bytes(zipped())
    assert zip_member(zipfile.ZipFile(tmp_path / "given.zip"), "a", 5000) == b"\0" * 5000


# Pickles


@pytest.mark.parametrize("protocol", range(6))
def test_no_pickle_runs_code(tmp_path, miniatures, monkeypatch, protocol):
    """The hidden name comes from the memo: a scan of the opcodes for strings would not see it."""
    monkeypatch.chdir(tmp_path)
    source = miniatures.cifar100(tmp_path / "source")
    hidden = b"\x80\x04\x8c\x05posix\x94\x8c\x05mkdir\x940h\x00h\x01\x93\x8c\x04harm\x85R."
    for name, content in (("train", Marker()), ("train", {"data": [Marker()]}), ("meta", Marker()), ("meta", hidden)):
        path = source / "cifar-100-python" / name
        before = path.read_bytes()
        path.write_bytes(content if content is hidden else pickle.dumps(content, protocol))
        with pytest.raises(UserError, match=rf"{name} refers to posix\.mkdir"):
            prepare("cifar100", tmp_path / "data", source)
        path.write_bytes(before)
    assert not (tmp_path / "harm").exists()


def cifar(**changes):
    """A file with images and labels, but for changes."""
    return pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "fine_labels": [0, 1]} | changes, 2)


@pytest.mark.parametrize(
    "content",
    [
        b"}r\xff\xff\xff\xff.",  # the memory of what was seen, with a place of the number 4 billion
        b"p4000000000\n.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00.",  # bytes, as many as no file has
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f.",
        b"\x80\x02" + b"]" * 100_000,
        b"\x80\x02" + b"(" * 100_000 + b"l.",
        b"cnumpy\nndarray\n(I1099511627776\ntR.",
        b"\x82\x01.",
        b"Pid\n.",
        b"N.",
        b"",
        cifar()[:-100],
        cifar(data=np.zeros((3, 3072), np.uint8)),
        cifar(data=np.zeros((2, 3072), np.float32)),
        cifar(data=[[0] * 3072] * 2),
        cifar(fine_labels=[0, 100]),
        cifar(fine_labels=[0, True]),
        cifar(fine_labels=[0, None]),
        cifar(fine_labels=[]),
        cifar(fine_labels="ab"),
    ],
    ids=range(20),
)
def test_a_file_that_is_not_a_cifar_file(tmp_path, miniatures, little_memory, content):
    source = miniatures.cifar100(tmp_path / "source")
    (source / "cifar-100-python/train").write_bytes(content)
    with pytest.raises(UserError, match=r"train.* (is truncated or damaged|holds a|refers to|has |do not fit)"):
        prepare("cifar100", tmp_path / "data", source)
