"""Training between `make_standard` and `make_private` is not covered by the old epsilon."""

import numpy as np
import pytest

import tf_lowrank_dp as tfdp

DELTA = 1e-3


@pytest.fixture
def standard(build, fit):
    """A model that was private, trained, and became ordinary."""
    model = build()
    fit(model)
    return tfdp.make_standard(model)


def is_unknown(model):
    return "prior spend" in tfdp.privacy_statement(model, DELTA).lower()


def test_ordinary_training_makes_the_spend_unknown(standard, data):
    assert not is_unknown(standard)
    standard.fit(*data, verbose=0)
    assert is_unknown(standard)
    assert is_unknown(tfdp.make_private(standard))


def test_it_stays_unknown_when_it_is_asked_only_after_private_training(standard, data, fit, build):
    standard.fit(*data, verbose=0)
    tfdp.make_private(standard)
    standard.compile(build().optimizer, loss=standard.loss, jit_compile=False)
    fit(standard)
    assert is_unknown(standard)


def test_weights_set_by_hand_make_the_spend_unknown(standard):
    standard.set_weights([np.ones_like(w) for w in standard.get_weights()])
    assert is_unknown(tfdp.make_private(standard))


def test_predicting_and_evaluating_change_nothing(standard, data):
    standard.predict(data[0], verbose=0)
    standard.evaluate(*data, verbose=0)
    assert not is_unknown(tfdp.make_private(standard))


def test_public_training_before_anything_was_spent_is_not_reported(build, data):
    """Weights that a model has before its first private step are public: see the threat model."""
    model = tfdp.make_standard(build())
    model.fit(*data, verbose=0)
    assert not is_unknown(tfdp.make_private(model))
