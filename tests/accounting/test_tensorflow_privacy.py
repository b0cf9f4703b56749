"""Epsilon equals that of TensorFlow Privacy's statements, where TensorFlow Privacy is installed."""

import math

import pytest

from benchmarks.faults.tensorflow_privacy import (
    CASES,
    INSTALL,
    TOLERANCE,
    Case,
    epochs_of,
    load_tensorflow_privacy,
    main,
    own_epsilon,
    parse_statement,
    stated_epsilon,
)


@pytest.fixture(scope="module")
def library():
    try:
        return load_tensorflow_privacy()
    except ImportError as error:
        pytest.skip(f"TensorFlow Privacy is not installed ({error}): {INSTALL}")


@pytest.mark.parametrize("accountant", ["rdp", "pld"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_epsilon_equals_that_of_the_statement(library, case, accountant):
    stated = stated_epsilon(library, case, accountant)
    assert own_epsilon(case, accountant) == pytest.approx(stated, rel=0, abs=TOLERANCE)


def test_the_benchmark_passes(library, capsys):
    assert main([]) == 0
    assert "PASS" in capsys.readouterr().out


@pytest.mark.parametrize("num_examples", [7, 1_000, 60_000, 1_437])
@pytest.mark.parametrize("steps", [1, 3, 333, 100_000])
def test_epochs_round_up_to_the_steps(num_examples, steps):
    for batch_size in (1, 3, num_examples):
        case = Case(1.0, batch_size, num_examples, steps, 1e-5)
        assert math.ceil(epochs_of(case) / case.sampling_rate) == steps


def test_the_epsilon_for_poisson_sampling_is_read():
    text = "Epsilon ... once per epoch:   4.240\n  Epsilon assuming Poisson sampling (*):   0.956\n"
    assert parse_statement(text) == 0.956
    with pytest.raises(ValueError, match="(?s)Expected.*Received"):
        parse_statement("epsilon = 1")
