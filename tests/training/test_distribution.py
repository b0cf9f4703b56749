"""Training on several devices or processes is refused, before anything is spent."""

import json
import os
import subprocess
import sys
from pathlib import Path

import keras
import pytest

import tf_lowrank_dp as tfdp
from tests.training import distributed_cases as cases

ROOT = Path(__file__).resolve().parents[2]
NAMES = {
    "mirrored": "MirroredStrategy",
    "workers": "CollectiveAllReduceStrategy",  # that of MultiWorkerMirroredStrategy
    "central": "CentralStorageStrategy",
    "one device": "OneDeviceStrategy",
}
IN_STRATEGIES = [f"mirrored: {function.__name__}" for function in cases.IN_MIRRORS] + [
    f"{name}: {function.__name__}" for name in list(NAMES)[1:] for function in cases.ELSEWHERE
]


@pytest.fixture(scope="module")
def found(request):
    """What came of each case in a process of its own with two CPUs."""
    here = [item for item in request.session.items if item.path == Path(__file__)]
    names = [item.callspec.params["name"] for item in here if hasattr(item, "callspec")]
    named = names if len(names) == len(here) and set(names) <= {*IN_STRATEGIES} else []
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
    environment.pop("TF_CONFIG", None)
    command = [sys.executable, "-m", "tests.training.distributed_cases", *named]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def assert_refused(case, received):
    error, message, releases = case
    assert error in ("UnsupportedModelError", "StagingError"), message
    assert f"Expected private training in one process on one device. Received: {received}" in (
        message
    )
    assert "Run one process without TF_CONFIG" in message
    assert releases == 0


@pytest.mark.parametrize("name", IN_STRATEGIES)
def test_what_a_strategy_has_distributed_is_refused(found, name):
    strategy, _, what = name.partition(": ")
    case = found[name]
    if "distributed" in what:
        assert_refused(case, "data that a tf.distribute strategy has distributed")
    else:
        assert NAMES[strategy] in case[1]
        assert_refused(case, "")


@pytest.mark.parametrize("name, kind", [("data", "DataParallel"), ("model", "ModelParallel")])
def test_an_active_keras_distribution_is_refused(found, name, kind):
    assert_refused(found[f"keras: {name}"], f"an active keras.distribution.{kind}")


@pytest.mark.parametrize("name", cases.CLUSTERS)
def test_a_cluster_of_several_processes_is_refused(found, name):
    assert_refused(found[f"TF_CONFIG: {name}"], "TF_CONFIG that")


@pytest.mark.parametrize("name", cases.ALONE)
def test_a_cluster_of_one_process_trains(found, name):
    assert found[f"TF_CONFIG: {name}"] == ["NoneType", "None", 2]


def test_one_of_several_devices_trains_and_every_step_counts(found):
    assert found["ordinary"] == ["NoneType", "None", 4]


def test_a_model_is_not_converted_or_loaded_as_private_in_a_cluster(monkeypatch, tmp_path):
    model = cases.prepare()
    cases.fit(model)
    model.save(tmp_path / "model.keras")
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cases.CLUSTERS["two workers"]}))
    loaded = keras.models.load_model(tmp_path / "model.keras")  # to evaluate it, say
    with pytest.raises(tfdp.UnsupportedModelError, match="'worker': 2"):
        tfdp.make_private(loaded)
    with pytest.raises(tfdp.NotPrivateError, match="make_private"):
        loaded.fit(cases.X, cases.Y, verbose=0)
