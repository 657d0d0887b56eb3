import copy
import hashlib
import http.server
import threading
import urllib.request
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from hierbench.config.sections import Model
from hierbench.models import build_backbone
from hierbench.models.weights import KNOWN, download_weights, find_weights, load_weights
from hierbench.utils.errors import UserError


def resnet50_from(weights):
    return Model(backbone="resnet50", weights=weights)


@pytest.fixture(scope="module")
def drawn():
    """A ResNet-50 as drawn, which takes long; copy what is loaded into."""
    return build_backbone(Model(backbone="resnet50"))


@pytest.fixture(scope="module")
def states():
    """The tensors of a ResNet-50 as published, under both names; small numbers, so that they tell apart."""
    from torchvision.models import resnet50

    torch.manual_seed(0)
    plain = resnet50(weights=None).state_dict()
    prefixed = {f"module.encoder_q.{name}": value for name, value in plain.items() if not name.startswith("fc.")}
    heads = {f"module.encoder_{which}.fc.{layer}.weight": torch.zeros(2) for which in "qk" for layer in (0, 2)}
    momentum = {"module.encoder_k.conv1.weight": torch.zeros(1)}
    queue = {"module.queue": torch.zeros(128, 8), "module.queue_ptr": torch.zeros(1)}
    whole = {"epoch": 800, "arch": "resnet50", "state_dict": prefixed | heads | momentum | queue}
    return {"imagenet1k-v1": plain, "pass": whole}


@pytest.fixture(scope="module")
def small_states(states):
    """The same names and shapes, all of one number, which is what a file of them holds."""

    def small(content):
        if isinstance(content, torch.Tensor):
            return torch.zeros((), dtype=content.dtype).expand(content.shape)
        return {name: small(value) for name, value in content.items()} if isinstance(content, dict) else content

    return small(states)


def saved(path, content):
    torch.save(content, path)
    return path


@pytest.mark.parametrize("name", ["imagenet1k-v1", "pass"])
def test_every_tensor_of_the_backbone_is_loaded(tmp_path, drawn, states, name):
    backbone = copy.deepcopy(drawn)
    load_weights(backbone, resnet50_from(name), saved(tmp_path / "w.pth", states[name]))
    expected = {key: value for key, value in states["imagenet1k-v1"].items() if not key.startswith("fc.")}
    loaded = backbone.layers.state_dict()
    assert loaded.keys() == expected.keys()
    assert all(torch.equal(loaded[key], expected[key]) for key in expected)


def test_counters_that_old_files_lack_do_not_matter(tmp_path, drawn, small_states):
    whole = small_states["imagenet1k-v1"]
    old = {key: value for key, value in whole.items() if not key.endswith("num_batches_tracked")}
    assert len(old) < len(whole)
    load_weights(copy.deepcopy(drawn), resnet50_from("imagenet1k-v1"), saved(tmp_path / "w.pth", old))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("imagenet1k-v1", lambda s: s.pop("layer3.2.conv1.weight"), r"lacks layer3\.2\.conv1\.weight \(1 such names\)"),
        ("imagenet1k-v1", lambda s: s.update(extra=torch.zeros(1)), "has an unexpected extra"),
        (
            "imagenet1k-v1",
            lambda s: s.update({"bn1.bias": torch.zeros(3)}),
            r"bn1\.bias has the shape \(3,\) instead of",
        ),
        ("imagenet1k-v1", lambda s: s.update({"bn1.bias": 3}), r"bn1\.bias is not a tensor"),
        ("pass", lambda s: s["state_dict"].update(other=torch.zeros(1)), "has an unexpected other"),
        ("pass", lambda s: s["state_dict"].pop("module.encoder_q.bn1.bias"), r"lacks bn1\.bias"),
    ],
)
def test_nothing_is_missing_or_left_over(tmp_path, drawn, small_states, name, change, message):
    content = dict(small_states[name])
    if name == "pass":
        content["state_dict"] = dict(content["state_dict"])
    change(content)
    with pytest.raises(UserError, match=message):
        load_weights(drawn, resnet50_from(name), saved(tmp_path / "w.pth", content))


def test_the_other_file_is_not_taken(tmp_path, drawn, small_states):
    for name, other in (("pass", "imagenet1k-v1"), ("imagenet1k-v1", "pass")):
        with pytest.raises(UserError, match=f"not {KNOWN[name].title}"):
            load_weights(drawn, resnet50_from(name), saved(tmp_path / "w.pth", small_states[other]))


@pytest.mark.parametrize("name", KNOWN)
def test_without_a_network_the_error_names_the_ways_out(tmp_path, monkeypatch, name):
    def no_network(*_, **__):
        raise OSError("no route to host")

    monkeypatch.setattr(urllib.request, "urlopen", no_network)
    with pytest.raises(UserError, match=r"no route to host.*--weights FILE.*--set model\.weights=none"):
        download_weights(resnet50_from(name), tmp_path)
    assert not list(tmp_path.iterdir())


@contextmanager
def served(answer):
    """The address of a file whose content is what a function returns, and the length that it is announced with."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            content, length = answer()
            self.send_response(200)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/x.pth"
        server.shutdown()


def test_a_download_with_another_digest_is_not_kept(tmp_path, monkeypatch):
    with served(lambda: (b"not the weights", 15)) as url:
        bad = KNOWN["imagenet1k-v1"].__class__("the weights", url, sha256="0676ba61" * 8)
        monkeypatch.setitem(KNOWN, "imagenet1k-v1", bad)
        with pytest.raises(UserError, match=r"could not be downloaded.*its SHA-256 is [0-9a-f]{64}, not (0676ba61){8}"):
            download_weights(resnet50_from("imagenet1k-v1"), tmp_path)
        assert not list(tmp_path.iterdir())
        monkeypatch.setitem(KNOWN, "pass", bad.__class__("the weights", url))  # no digest is published
        with pytest.raises(UserError, match=r"could not be downloaded.*not a file of weights"):
            download_weights(resnet50_from("pass"), tmp_path)
        assert not list(tmp_path.iterdir())


def test_a_whole_download_is_kept_and_found_again(tmp_path, small_states, monkeypatch):
    content = saved(tmp_path / "w.pth", small_states["pass"]).read_bytes()
    folder, cut = tmp_path / "weights", [1]
    with served(lambda: (content[: len(content) // 2] if cut else content, len(content))) as url:
        known = KNOWN["pass"]
        monkeypatch.setitem(KNOWN, "pass", replace(known, url=url))
        with pytest.raises(UserError, match="could not be downloaded"):
            download_weights(resnet50_from("pass"), folder)
        assert not folder.exists() and find_weights(resnet50_from("pass"), folder) is None
        cut.clear()
        assert download_weights(resnet50_from("pass"), folder).read_bytes() == content
    assert find_weights(resnet50_from("pass"), folder) == folder / "x.pth"
    digest = hashlib.sha256(content).hexdigest()
    monkeypatch.setitem(KNOWN, "pass", replace(known, url=url, sha256=digest))
    assert find_weights(resnet50_from("pass"), folder) == folder / "x.pth"
    (folder / "x.pth").write_bytes(content[:-1])  # damaged on the disk
    assert find_weights(resnet50_from("pass"), folder) is None


def test_a_given_file_must_exist(tmp_path):
    with pytest.raises(UserError, match="--weights: no file"):
        find_weights(resnet50_from("pass"), tmp_path, tmp_path / "nowhere.pth")
    assert find_weights(resnet50_from("pass"), tmp_path) is None
