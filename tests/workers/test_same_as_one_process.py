"""Several processes on this machine train the model that one process trains on the same draws."""

import numpy as np
import pytest

from tests.workers.processes import found_by, started

TWO = [
    *("dpsgd", "powersgd", "sparse", "gep", "centred", "calibrated", "eager", "compiled"),
    *("microbatches and executions", "empty shares", "rgp", "lsg", "gep with noise"),
]
CASES = [*(f"2:{name}" for name in TWO), "3:dpsgd", "3:lsg"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What the workers, and one process, have found of each case."""
    folder = tmp_path_factory.mktemp("workers")
    many = {}
    for count in (2, 3, 1):  # one group after the other: they share two cores
        results = found_by(started(count, "tests.workers.cases", folder, *CASES), folder)
        many[count] = results
    [one] = many.pop(1)
    return {case: (one[case], [r[case] for r in many[int(case[0])]]) for case in CASES}


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
