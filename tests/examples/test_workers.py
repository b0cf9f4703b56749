"""The example of several workers, as a user runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_two_workers_train_one_model_and_the_chief_states_what_was_spent():
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}
    command = "-m tf_lowrank_dp.launch -n 2 examples/workers.py --smoke".split()
    done = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "[0] 2 workers, test accuracy" in done.stdout
    assert re.search(r"^\[0\] \([0-9.]+, 0.0001\)-differentially private", done.stdout, re.M)
    assert "RGP: 6 steps" in done.stdout
