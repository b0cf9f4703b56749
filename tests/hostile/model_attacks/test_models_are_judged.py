"""Hostile models are refused with a remedy, or take each example by itself; honest ones train."""

import re

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.hostile.model_attacks.suite import SUITE as CASES
from tf_lowrank_dp.training.state import state_of

OUT_OF_SIGHT = ("numpy function", "python function")
"""In the names of honest cases that are refused: nobody can look into Python functions."""
MESSAGE = r"(?s)Expected.*Received.*\. [A-Z]"  # with a remedy behind it


HARMLESS = (
    "mask seeded by the batch",
    "seed set from the data",
    "fixed mask",
)
"""Hostile in plain Keras only: a private step draws its own numbers, whatever the seed."""

COMPILED = ("negatives of the sequence",)
"""Whose gradient, that of `diag_part`, TensorFlow takes for a static number of rows only.

Plain Keras trains it where the size of the batch divides that of the data; a private step has
static parts under XLA.
"""


def verdict_on(case):
    if case.name in HARMLESS:
        return "honest"
    return "hostile" if any(name in case.name for name in OUT_OF_SIGHT) else case.kind


def of_kind(kind):
    cases = [pytest.param(case, id=case.name) for case in CASES if verdict_on(case) == kind]
    return pytest.mark.parametrize("case", cases)


def trained(case, seed):
    """The model of a case, and a function that makes it private and trains it for two steps."""
    keras.utils.set_random_seed(seed)
    model = case.build()

    def fit():
        tfdp.make_private(model)
        optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0)
        jit_compile = case.name in COMPILED
        model.compile(
            optimizer, case.make_loss(), jit_compile=jit_compile, **case.compile_arguments
        )
        x, y = case.data(np.random.default_rng(seed), 16)
        model.fit(x, y, batch_size=8, verbose=0)

    return model, fit


@of_kind("hostile")
def test_a_hostile_model_is_refused_or_takes_each_example_by_itself(case):
    for seed in range(case.initialisations):
        model, fit = trained(case, seed)
        weights = [np.array(v) for v in model.trainable_variables]
        try:
            fit()
        except (tfdp.UnsupportedModelError, tfdp.NotPrivateError) as error:
            assert re.search(MESSAGE, str(error))
        else:
            assert state_of(model).run.judged.method in ("vectorized", "loop")
            continue
        assert tfdp.privacy_spent(model, 1e-5) == 0.0
        for before, after in zip(weights, model.trainable_variables, strict=True):
            np.testing.assert_array_equal(before, after)


@of_kind("honest")
def test_an_honest_model_trains(case):
    for seed in range(case.initialisations):
        model, fit = trained(case, seed)
        fit()
        assert tfdp.privacy_spent(model, 1e-5) > 0.0
        for variable in model.trainable_variables:
            assert np.all(np.isfinite(variable))
