"""Several processes on this machine train the model that one process trains on the same draws."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from tests.workers.processes import ROOT, environment, once

TWO = ["dpsgd", "powersgd", "sharded", "sparse", "gep", "rgp", "lsg", "gep with noise"]
CASES = [*(f"2:{name}" for name in TWO), "3:lsg"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What one process, and the workers, have found of each case."""

    def run(folder):
        command = [sys.executable, "-m", "tests.workers.cases", str(folder), *CASES]
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        return {file.name: pickle.loads(file.read_bytes()) for file in folder.glob("*.pickle")}

    of = once(tmp_path_factory, "same", run)

    def by_worker(case):
        return [of[f"{case[0]}.{index}.pickle"][case] for index in range(int(case[0]))]

    return {case: (of["1.0.pickle"][case], by_worker(case)) for case in CASES}


@pytest.mark.parametrize("case", CASES)
def test_weights_are_those_of_one_process(found, case):
    (expected, *_), workers = found[case]
    for weights, *_ in workers:
        for ours, theirs in zip(weights, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_weights_of_all_workers_have_the_same_bits(found, case):
    _, [(first, *_), *others] = found[case]
    for weights, *_ in others:
        assert [w.tobytes() for w in weights] == [w.tobytes() for w in first]


@pytest.mark.parametrize("case", CASES)
def test_epsilon_and_steps_are_those_of_one_process(found, case):
    (_, *expected), workers = found[case]
    assert all(spent == expected for _, *spent in workers)
