"""One private step of a model with Dropout, integrated exactly (docs/randomness.md)."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from dp_accounting import pld
from scipy import integrate, stats

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import Sampling

L = keras.layers
STEPS, RATE, KEPT = 2000, 0.5, 0.5


def sums_of_steps(records, jit_compile):
    """The sums of clipped gradients, without noise, of steps that sample `records` equal records.

    The model is a weight behind Dropout, so that a record contributes 1 where it is kept and 0
    where it is not: its gradient is 2 or 0, the clip 1.
    """
    model = keras.Sequential(
        [keras.Input((1,)), L.Dropout(1 - KEPT, seed=1), L.Dense(1, use_bias=False)]
    )
    tfdp.make_private(model)
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=0.0))
    sampling = Sampling.poisson(records, batch_size=1, sampling_rate=1 / records)
    trainer = tfdp.PrivateTrainer(model, sampling, steps=STEPS)
    engine = trainer._run.engine

    def forward(batch):
        return model(batch["x"], training=True)[:, 0], ()

    @tf.function(autograph=False)
    def one_step(presence):
        x = tf.ones([records, 1])
        found = engine.private_gradients(forward, {"x": x}, presence, jit_compile=jit_compile)
        return found[0][0, 0]

    coins = np.random.default_rng(0).uniform(size=(STEPS, records)) < RATE
    return np.array([one_step(tf.constant(c, tf.float32)).numpy() for c in coins])


@pytest.mark.parametrize("jit_compile", [False, True])
def test_each_example_has_a_mask_of_its_own_whatever_the_number_of_rows(jit_compile):
    for records in (4, 5):
        sums = np.rint(sums_of_steps(records, jit_compile)).astype(int)
        counts = np.bincount(sums, minlength=records + 1)
        expected = STEPS * stats.binom(records, RATE * KEPT).pmf(np.arange(records + 1))
        assert stats.chisquare(counts, expected).pvalue > 1e-4


@pytest.mark.parametrize("noise_multiplier", [0.7, 1.0, 4.0])
def test_one_step_with_masks_stays_within_the_accountants_delta(noise_multiplier):
    """The exact divergence of the laws that the test above found, either way."""
    grid = np.linspace(-24, 33, 100_001)

    def density(records):
        weights = stats.binom(records, RATE * KEPT).pmf(np.arange(records + 1))
        noise = [stats.norm(k, noise_multiplier).pdf(grid) for k in range(records + 1)]
        return weights @ np.array(noise)

    accounted = pld.privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=RATE
    )
    for records in (1, 4, 8):
        p, q = density(records), density(records + 1)
        for epsilon in (0.1, 0.5, 1.0):
            delta = accounted.get_delta_for_epsilon(epsilon)
            for one, other in ((p, q), (q, p)):
                difference = np.maximum(one - np.exp(epsilon) * other, 0.0)
                assert integrate.trapezoid(difference, grid) <= delta + 1e-9
