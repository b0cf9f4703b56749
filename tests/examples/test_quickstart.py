"""The quickstart, as a user runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "examples/quickstart.py", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=600,
    )


def test_smoke_prints_both_accuracies_and_the_statement():
    result = run("--smoke", "--epsilon", "2")
    assert result.returncode == 0, result.stderr
    out = result.stdout
    assert "data set: digits, 1437 training and 360 test examples, 2 epochs" in out
    accuracies = {
        name: float(re.search(rf"^{name} +([0-9.]+)% +[0-9.]+$", out, re.MULTILINE)[1])
        for name in ("non-private", "private, epsilon 2")
    }
    assert accuracies["non-private"] > 60
    # Two epochs: far from trained, but better than the 10 % of a guess.
    assert accuracies["private, epsilon 2"] > 15
    statement = re.search(r"^\(([0-9.]+), 1e-05\)-differentially private", out, re.MULTILINE)
    assert 1.9 < float(statement[1]) <= 2.0
    assert "DP-SGD: 6 steps" in out
    assert "expected batch size 512 of 1437 examples" in re.sub(r"\s+", " ", out)


def test_missing_mnist_is_explained(tmp_path):
    result = run("--dataset", "mnist", TFDS_DATA_DIR=str(tmp_path))
    assert result.returncode == 1
    assert "Expected MNIST, prepared for tensorflow_datasets." in result.stderr
    assert "Remedy: " in result.stderr and "TFDS_DATA_DIR" in result.stderr
    assert "Traceback" not in result.stderr
