"""Every download is compared with a full SHA-256, or says before it starts that there is none."""

import hashlib
import http.server
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import hierbench
from hierbench.config.pretrained import KNOWN_WEIGHTS
from hierbench.config.sections import Model
from hierbench.data.datasets import cifar100, fgvc, grocery, inat19, split_lists, tieredimagenet_h, tiny_imagenet
from hierbench.data.datasets.split_lists import listed_file, read_lists
from hierbench.data.source import obtain_archive
from hierbench.utils import download
from hierbench.utils.download import Remote, obtain
from hierbench.utils.errors import UserError

CONTENT = b"some content " * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def site(monkeypatch):
    """(address, what happened in order: lines that were said, and requests; how the server answers)."""
    events, answer = [], {"announced": len(CONTENT), "sent": CONTENT, "status": 200}

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            events.append("GET")
            self.send_response(answer["status"])
            if answer["announced"] is not None:
                self.send_header("Content-Length", str(answer["announced"]))
            self.end_headers()
            self.wfile.write(answer["sent"])

        def log_message(self, *_):
            pass

    monkeypatch.setattr(download, "say", events.append)
    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/x.bin", events, answer
        server.shutdown()


def remotes():
    weights = [
        Remote(weights_file.title, weights_file.url, weights_file.sha256) for weights_file in KNOWN_WEIGHTS.values()
    ]
    return [
        *weights,
        cifar100.CIFAR100_ARCHIVE,
        fgvc.FGVC_ARCHIVE,
        grocery.GROCERY_ARCHIVE,
        tiny_imagenet.TINY_IMAGENET_ARCHIVE,
    ]


def test_every_download_has_a_full_digest_or_no_digest():
    """The beginning of a digest is no digest; whose file has none is listed here."""
    files = [inat19.INAT19_TREE, inat19.INAT19_SPLITS, tieredimagenet_h.TIERED_TREE, tieredimagenet_h.TIERED_SPLITS]
    assert all(re.fullmatch("[0-9a-f]{64}|", entry.sha256) for entry in (*remotes(), *files))
    assert [remote.name for remote in remotes() if not remote.sha256] == [
        "moco_v2_800ep.pth.tar",
        grocery.GROCERY_ARCHIVE.name,
    ]
    assert [file.name for file in files if not file.sha256] == ["splits_inat19.zip"]
    assert re.fullmatch("[0-9a-f]{40}", inat19.INAT19_SPLITS.blob)
    assert KNOWN_WEIGHTS["imagenet1k-v1"].sha256.startswith("0676ba61")  # as the file's own name says


def test_nothing_is_downloaded_elsewhere():
    """Neither by a library that checks less; `hierbench.utils.download` is the only module that opens an address."""
    words = (
        "urlopen",
        "urlretrieve",
        "download_url",
        "torch.hub",
        "download=True",
        "requests.get(",
        "load_state_dict_from",
    )
    root = Path(hierbench.__file__).parent
    importers = [
        path.name for path in root.rglob("*.py") if any(word in path.read_text(encoding="utf-8") for word in words)
    ]
    assert importers == ["download.py"]


def test_a_known_digest_is_said_and_compared(tmp_path, site):
    url, events, answer = site
    remote = Remote("the file", url, SHA256)
    assert remote.there(tmp_path / "new") is None
    path = obtain(remote, tmp_path / "new", "copy it")
    assert obtain(remote, tmp_path / "new", "copy it") == path  # from there
    assert events == [f"downloading the file from {url} (SHA-256 {SHA256})", "GET"]
    assert path.read_bytes() == CONTENT and remote.there(tmp_path / "new") == path
    assert [file.name for file in path.parent.iterdir()] == ["x.bin"]
    path.write_bytes(CONTENT[:-1])
    assert remote.there(tmp_path / "new") is None  # damaged on the disk
    answer["sent"] = CONTENT[:-1] + b"!"
    with pytest.raises(UserError, match=rf"its SHA-256 is [0-9a-f]{{64}}, not {SHA256}: it is not used\); copy it"):
        obtain(remote, tmp_path / "other", "copy it")
    assert not (tmp_path / "other").exists()


def test_an_unknown_digest_is_reported_before_the_download_and_the_actual_one_after_it(tmp_path, site):
    url, events, _ = site
    remote = Remote("the file", url)
    path = obtain(remote, tmp_path, "copy it")
    assert events == [
        f"downloading the file from {url}; its SHA-256 is unknown: it cannot be verified",
        "GET",
        f"SHA-256 of x.bin: {SHA256}",
    ]
    assert remote.there(tmp_path) == path

    def refuse(_):
        raise UserError("no good")

    path.unlink()
    with pytest.raises(UserError, match=r"could not be downloaded .*no good\); copy it"):
        obtain(remote, tmp_path, "copy it", check=refuse)
    assert not list(tmp_path.iterdir())


def test_the_weights_without_digest_say_so(tmp_path, site, monkeypatch):
    from hierbench.models.weights import download_weights

    url, events, _ = site
    weights_file = KNOWN_WEIGHTS["pass"]
    monkeypatch.setitem(KNOWN_WEIGHTS, "pass", replace(weights_file, url=url))
    with pytest.raises(UserError, match="is not a file of weights"):  # it is looked into, at least
        download_weights(Model(backbone="resnet50", weights="pass"), tmp_path)
    assert events[0].startswith("downloading the PASS weights") and "its SHA-256 is unknown" in events[0]
    assert events[1] == "GET" and not list(tmp_path.iterdir())


def test_a_list_with_git_s_digest_alone_says_so(tmp_path, site, monkeypatch):
    url, events, answer = site
    monkeypatch.setattr(split_lists, "SPLIT_LISTS_URL", url.rpartition("/")[0])
    answer["sent"], answer["announced"] = b"a b\na c\n", None
    tree = listed_file("x.txt", sha256=hashlib.sha256(answer["sent"]).hexdigest())
    with pytest.raises(UserError, match=r"y\.zip could not be downloaded .*its git SHA-1 is \w{40}, not 0{40}: it is"):
        read_lists(tree, listed_file("y.zip", blob="0" * 40), tmp_path, None)
    assert events[2].endswith(f"its SHA-256 is unknown: it is compared with its git SHA-1, {'0' * 40}")
    assert [path.name for path in (tmp_path / "making-better-mistakes").iterdir()] == ["x.txt"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"sent": CONTENT[:100]}, "it broke off after 100 of 13,000 bytes"),
        ({"status": 404}, "HTTP Error 404"),
        ({"sent": CONTENT * 2, "announced": None}, "it has more than 0 MiB"),
    ],
)
def test_an_incomplete_download_is_not_kept(tmp_path, site, change, reason):
    url, _, answer = site
    answer |= change
    remote = Remote("the file", url, SHA256, largest=20_000)
    command = "hierbench data prepare x"
    with pytest.raises(UserError, match=rf"the file could not be downloaded from {url} \({reason}.*{command} --source"):
        obtain_archive(remote, tmp_path, "x")
    assert not list(tmp_path.iterdir())


def test_progress_is_said_now_and_then(tmp_path, site, monkeypatch):
    url, events, _ = site
    monkeypatch.setattr(download, "SAY_EVERY", -1.0)
    monkeypatch.setattr(download, "DOWNLOAD_BLOCK", 10_000)
    obtain(Remote("the file", url, SHA256), tmp_path, "copy it")
    assert events[2:] == ["x.bin: 0 of 0 MiB, 77%", "x.bin: 0 of 0 MiB, 100%"]
