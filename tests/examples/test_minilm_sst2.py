"""The fine-tuning example, as a user runs it, without weights and downloads."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "examples/minilm_sst2.py", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        timeout=600,
    )


def test_smoke_trains_privately_and_prints_accuracy_and_statement():
    result = run("--smoke", "--epsilon", "2")
    assert result.returncode == 0, result.stderr
    out = result.stdout
    assert "fallback" not in out and "token_embedding" in out.partition("are frozen:")[2]
    assert re.search(r"^validation accuracy [0-9.]+%$", out, re.MULTILINE)
    statement = re.search(r"^\(([0-9.]+), 1e-05\)-differentially private", out, re.MULTILINE)
    assert 1.8 < float(statement[1]) <= 2.0
    assert re.search(r"LSG.*: 2 steps", out)
