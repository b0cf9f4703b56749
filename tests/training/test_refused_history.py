"""No step is taken of which no epsilon could be stated together with what was spent before."""

import numpy as np
import pytest
from dp_accounting import dp_event

import tf_lowrank_dp as tfdp

DELTA = 1e-3
WITHOUT_RENYI_BOUND = dp_event.DiscreteLaplaceDpEvent(0.5, 1)


def weights(model):
    return [np.array(variable) for variable in model.trainable_variables]


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_an_event_without_a_renyi_bound_is_refused_by_that_accountant_before_a_step(
    accountant, small_model, data, private
):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA, accountant=accountant)
    tfdp.record_release(model, WITHOUT_RENYI_BOUND, "a vocabulary")
    before = weights(model)
    if accountant == "rdp":
        with pytest.raises(ValueError, match="(?s)to be 'pld'.*Received.*set it on the optimizer"):
            model.fit(*data(), batch_size=6, verbose=0)
        assert all(map(np.array_equal, before, weights(model)))
        private(model, noise_multiplier=2.0, delta=DELTA, accountant="pld")  # the remedy
    model.fit(*data(), batch_size=6, verbose=0)
    assert tfdp.privacy_spent(model) > 0.1


def test_passes_after_draws_are_refused_by_rdp_before_a_step(
    small_model, data, private, same_batches
):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA, accountant="rdp")
    model.fit(*data(), batch_size=6, verbose=0)
    before, spent = weights(model), tfdp.privacy_spent(model)
    with pytest.raises(ValueError, match="(?s)Poisson sampling and shuffled passes.*Received"):
        model.fit(same_batches(*data()), sampling="shuffle", verbose=0)
    assert all(map(np.array_equal, before, weights(model)))
    assert tfdp.privacy_spent(model) == spent
    private(model, noise_multiplier=2.0, delta=DELTA, accountant="pld")
    model.fit(same_batches(*data()), sampling="shuffle", verbose=0)
    assert tfdp.privacy_spent(model) > spent
