"""Argument checks: one wording, and no value slips through."""

import math

import numpy as np
import pytest

from tf_lowrank_dp import _validate

WORDING = r"^Expected .*\. Received: .*\. \w.*\.$"


@pytest.mark.parametrize(
    "check",
    [
        _validate.positive,
        _validate.non_negative,
        _validate.positive_or_infinite,
        _validate.probability,
        _validate.below_one,
        lambda **named: _validate.integer_at_least(0, **named),
        lambda **named: _validate.one_of(("a", "b"), **named),
    ],
)
@pytest.mark.parametrize(
    "value", [None, math.nan, -1, -0.5, True, "1", np.bool_(True), [1.0], -math.inf]
)
def test_missing_nan_negative_and_boolean_values_are_refused(check, value):
    with pytest.raises(ValueError, match=WORDING):
        check(argument=value)


def test_ranges():
    assert _validate.non_negative(a=0) == 0.0
    assert _validate.probability(a=1) == 1.0
    assert _validate.positive_or_infinite(a=math.inf) == math.inf
    assert _validate.integer_at_least(2, a=np.int64(2)) == 2
    assert type(_validate.positive(a=np.float32(2))) is float
    for refused in (
        lambda: _validate.positive(a=0),
        lambda: _validate.positive(a=math.inf),
        lambda: _validate.below_one(a=1),
        lambda: _validate.probability(a=1.01),
        lambda: _validate.integer_at_least(2, a=1),
        lambda: _validate.integer_at_least(2, a=2.0),
    ):
        with pytest.raises(ValueError, match=WORDING):
            refused()


def test_either_epsilon_with_delta_or_noise_multiplier():
    check = _validate.epsilon_delta_or_noise_multiplier
    assert check(epsilon=3, delta=1e-5) == (3.0, 1e-5, None)
    assert check(noise_multiplier=0) == (None, None, 0.0)
    assert check(noise_multiplier=1.1, delta=1e-5) == (None, 1e-5, 1.1)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"delta": 1e-5},
        {"epsilon": 3.0},
        {"epsilon": 3.0, "delta": 1e-5, "noise_multiplier": 1.0},
        {"epsilon": math.nan, "delta": 1e-5},
        {"epsilon": -3.0, "delta": 1e-5},
        {"epsilon": 0.0, "delta": 1e-5},
        {"epsilon": True, "delta": 1e-5},
        {"epsilon": 3.0, "delta": 0.0},
        {"epsilon": 3.0, "delta": math.nan},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.inf},
        {"noise_multiplier": False},
    ],
)
def test_privacy_arguments_that_are_refused(arguments):
    with pytest.raises(ValueError, match=WORDING):
        _validate.epsilon_delta_or_noise_multiplier(**arguments)
