import json

import torch

from tests.support.run_files import specs_in

SMALL = ["--methods", "ce", "--types", "type-I", "--dataset", "shapes", "--seeds", "1", "--set", "train.epochs=1"]
VIT = ["--set", "model.backbone=timm:test_vit", "--set", "model.input_size=[64,48]"]


def test_an_untrained_vision_transformer_and_one_from_a_file(cli, tmp_path, data_dir):
    import timm

    where = ["--data-dir", data_dir, "--mlflow", "off"]
    done = cli(tmp_path, "run", *SMALL, *VIT, *where).ok()
    assert "1 to train" in done.err and "top-1" in done.err
    torch.manual_seed(0)
    torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "w.pth")
    cli(tmp_path, "run", *SMALL, *VIT, *where, "--weights", "w.pth").ok()
    specs = specs_in(tmp_path / "runs").values()
    assert {spec["model"]["weights"] for spec in specs} == {"none", "file"}
    assert all(spec["model"]["input_size"] == [64, 48] for spec in specs)
    assert {spec["weights"] is None for spec in specs} == {True, False}
    again = cli(tmp_path, "run", *SMALL, *VIT, *where, "--weights", "w.pth").ok()
    assert "1 cached" in again.err
    environments = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/environment.json")]
    assert all(environment["timm"] == timm.__version__ for environment in environments)


def test_a_dry_run_counts_the_network_at_its_own_size(cli, tmp_path, data_dir):
    arguments = [*SMALL, "--set", "model.backbone=timm:test_vit", "--data-dir", data_dir, "--dry-run"]
    shown = cli(tmp_path, "run", *arguments).ok().out
    assert "Backbone: timm:test_vit, 160x160 pixels." in shown and "| 375,416 " in shown
