"""Fine-tuning on SST-2, with an encoder of two small layers and sentences of no words."""

import json

import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from benchmarks.reproductions import sst2, sst2_carriers

keras_hub = pytest.importorskip("keras_hub")

SHORT = "--steps 1 --batch-size 8 --held-out 8 --trained-layers 1 --sequence-length 6".split()


@pytest.fixture(autouse=True)
def small(monkeypatch):
    rng = np.random.default_rng(0)
    split = sst2.Split(rng.integers(1, 10, (24, 8)).astype("int32"), rng.integers(0, 2, 24))
    monkeypatch.setattr(sst2, "load_data", lambda args: sst2.Data(split, split))
    monkeypatch.setattr(sst2, "weights_dir", lambda given: "")
    monkeypatch.setattr(
        sst2, "load_encoder", lambda weights: keras_hub.models.BertBackbone(10, 2, 2, 16, 32, 0.0)
    )
    monkeypatch.setattr(sst2.Runs, "_splits", None)


@pytest.mark.parametrize("name", [name for name, each in sst2.METHODS.items() if each.optimizer])
def test_every_method_has_arguments_that_its_optimizer_takes(name):
    method = sst2.METHODS[name]
    optimizer = getattr(tfdp, method.optimizer)(
        l2_norm_clip=1.0, noise_multiplier=1.0, **method.arguments
    )
    assert optimizer.get_config()["noise_multiplier"] == 1.0


def test_runs_are_recorded_and_not_repeated(tmp_path, capsys):
    file = tmp_path / "sst2.json"
    methods = ["np", "rgp-8-random", "lsg-2-0.5"]
    arguments = [*SHORT, "--json", str(file), "--learning-rates", "0.01", "--seeds", "0"]
    for _ in range(2):
        sst2.main([*arguments, "--methods", *methods])
    assert capsys.readouterr().out.count("held out") == len(methods) + 2  # runs, and two tables
    records = {each["settings"]["method"]: each for each in json.loads(file.read_text())["runs"]}
    assert list(records) == methods
    assert records["np"]["epsilon"] is None
    assert 3.2 < records["lsg-2-0.5"]["epsilon"] <= 3.3
    assert records["rgp-8-random"]["settings"]["arguments"]["carriers_from"] == "random"
    assert sst2_carriers.OTHERS.keys() <= sst2.METHODS.keys()
