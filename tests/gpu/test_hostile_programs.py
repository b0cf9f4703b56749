"""What hostile records release can be written out for a GPU, and run where JAX is."""

import json
import subprocess
import sys

import pytest

from tests.gpu.hostile_programs import main


def test_programs_of_hostile_records_run_with_jax_alone_and_keep_the_clip(tmp_path):
    pytest.importorskip("jax", reason="JAX runs the programs; .ci/run installs it")
    names = ["narrow", "narrow, as on a CPU", "dense dpsgd", "sequence dpsgd per layer bfloat"]
    main([str(tmp_path), "--names", *names])
    command = [sys.executable, str(tmp_path / "released.py"), "--at-once", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {run["name"]: run for run in map(json.loads, done.stdout.splitlines())}
    assert sorted(found) == sorted(names)
    for run in found.values():
        assert run["releases"] >= 100 and 0.9 < run["largest"] <= 1.0 + 1e-5
