"""A few kills and resumes; `benchmarks/faults/crash_trials.py` takes as many as it is told to."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_training_that_is_killed_resumes_with_its_ledger_its_noise_and_its_state(tmp_path):
    record = tmp_path / "record.json"
    module = "benchmarks.faults.crash_trials"
    command = [sys.executable, "-m", module, "--trials", "3", "--seed", "8"]
    done = subprocess.run(
        [*command, "--json", record], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    content = json.loads(record.read_text())
    assert content["trials"] == 3 and content["failures"] == []
    assert content["draws of noise, all different"] == content["steps"] > 0
