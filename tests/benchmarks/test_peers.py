"""The comparison with other libraries: our own side runs, and the table takes medians."""

import pathlib
import sys

import pytest

from benchmarks.speed.gpu.peers import measured
from benchmarks.speed.peers.__main__ import table
from benchmarks.speed.peers.sides import HERE, LIBRARIES, Side


def test_our_side_trains_an_epoch_whenever_it_is_told_to():
    python = pathlib.Path(sys.executable)
    side = Side(python, "keras_side.py", model="mlp", mode="dpsgd", batch=8, steps=2)
    try:
        first, second = side.epoch(), side.epoch()
    finally:
        side.close()
    assert 0 < first["wall_s"] < first["since_start_s"] < second["since_start_s"]
    assert second["peak_mib"] > 0


def test_a_side_that_fails_says_why():
    python = pathlib.Path(sys.executable)
    side = Side(python, "keras_side.py", model="no such model", mode="dpsgd", batch=8, steps=2)
    with pytest.raises(RuntimeError, match="no such model"):
        side.epoch()


def test_on_a_gpu_a_library_that_cannot_train_is_reported():
    record = measured("opacus", steps=1, epochs=1, mode="plain", model="none", batch=2)
    assert record["failed"] and record["library"] == "opacus"


def test_every_library_has_a_side_and_a_plain_mode():
    assert all((HERE / library.script).exists() for library in LIBRARIES.values())
    assert {library.modes[0] for library in LIBRARIES.values()} == {"plain"}


def test_the_table_compares_medians_with_its_own_plain_step_and_with_ours():
    common = {"model": "mlp", "peak_mib": 10.0}
    records = [
        {**common, "library": "tf_lowrank_dp", "mode": "plain", "step_ms": [1.0, 9.0, 2.0]},
        {**common, "library": "tf_lowrank_dp", "mode": "dpsgd", "step_ms": [3.0]},
        {**common, "library": "opacus", "mode": "plain", "step_ms": [4.0]},
        {**common, "library": "opacus", "mode": "ghost", "step_ms": [6.0]},
        {"model": "mlp", "library": "jax-privacy", "mode": "vmap", "fails": "why"},
    ]
    rows = table(records)
    assert rows[1][3:6] == ["3.0", "1.50", "1.00"]
    assert rows[3][3:6] == ["6.0", "1.50", "2.00"]
    assert rows[4][3:5] == ["fails", "why"]
