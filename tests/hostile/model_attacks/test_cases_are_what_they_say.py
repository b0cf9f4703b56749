"""Hostile models break a law of privacy and honest ones keep all, in plain Keras."""

import keras
import numpy as np
import pytest

from tests.hostile.model_attacks.oracle import LAWS, all_cases

CASES = all_cases()
ROUNDING, BROKEN = 2e-5, 2e-4  # losses and gradients are float32


def of_kind(kind):
    cases = [case for case in CASES if case.kind == kind]
    return pytest.mark.parametrize("case", cases, ids=[case.name for case in cases])


def test_there_are_enough_of_each_kind_and_names_are_unique():
    assert sum(case.kind == "hostile" for case in CASES) >= 30
    assert sum(case.kind == "honest" for case in CASES) >= 30
    assert len({case.name for case in CASES}) == len(CASES)


@of_kind("hostile")
def test_a_hostile_model_breaks_the_law_that_it_names(case):
    assert LAWS[case.sensitive_to](case) > BROKEN


@of_kind("honest")
def test_an_honest_model_keeps_all_laws(case):
    laws = set(LAWS) - {"others in some draw"} - (set() if case.random else {"neighbours"})
    broken = {name: LAWS[name](case) for name in sorted(laws)}
    assert not {name: by for name, by in broken.items() if not by <= ROUNDING}


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_each_trains_in_plain_keras(case):
    keras.utils.set_random_seed(0)
    model = case.build()
    model.compile("sgd", case.make_loss(), jit_compile=False, **case.compile_arguments)
    model.fit(*case.data(np.random.default_rng(0), 16), batch_size=8, verbose=0)
    assert model.optimizer.iterations == 2
    for variable in model.trainable_variables:
        assert np.all(np.isfinite(variable))
