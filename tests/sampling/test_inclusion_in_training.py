"""Which examples moved the weights of a trained model: exactly those of one Poisson draw a step."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.hostile.models import linear_loss

EXAMPLES, EXPECTED = 40, 8
RATE = EXPECTED / EXAMPLES


def inclusions(epochs, microbatch_size=None, seed=None, **fit):
    """How often each example moved the weights at each step, `(steps, EXAMPLES)`, and the model.

    Example `n` has the `n`-th unit vector as its input and all its loss is weight `n`, so that a
    step of plain gradient descent takes `1 / EXPECTED` off exactly the weights of its examples.
    """
    layer = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((EXAMPLES,)), layer])
    tfdp.make_private(model, microbatch_size=microbatch_size)
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(1.0), l2_norm_clip=float("inf"), noise_multiplier=0.0, seed=seed
    )
    model.compile(optimizer, loss=linear_loss, jit_compile=False)
    weights = [np.zeros(EXAMPLES)]
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: weights.append(np.array(layer.kernel)[:, 0])
    )
    x, y = np.eye(EXAMPLES, dtype="float32"), np.ones((EXAMPLES, 1), "float32")
    model.fit(x, y, batch_size=EXPECTED, epochs=epochs, verbose=0, callbacks=[watch], **fit)
    return -np.diff(weights, axis=0) * EXPECTED, model


def test_every_example_counts_once_or_not_at_all_with_the_rate_that_is_accounted():
    counts, model = inclusions(epochs=60, seed=0)
    drawn = np.round(counts)
    np.testing.assert_allclose(counts, drawn, atol=1e-3)
    assert set(np.unique(drawn)) == {0.0, 1.0}
    [entry] = model.optimizer.ledger.entries
    assert entry.steps == len(drawn) and entry.sampling.sampling_rate == RATE
    steps, variance = len(drawn), RATE * (1 - RATE)
    assert abs(drawn.mean() - RATE) <= 4 * np.sqrt(variance / drawn.size)
    assert np.max(np.abs(drawn.mean(0) - RATE)) <= 5 * np.sqrt(variance / steps)
    # Sizes vary as those of independent coins do: no draw is filled up or cut.
    sizes = drawn.sum(1)
    assert abs(sizes.var() / (EXAMPLES * variance) - 1) <= 5 * np.sqrt(2 / steps)
    # Neither examples of a step nor consecutive steps know of each other.
    scaled = (drawn - RATE) / np.sqrt(variance)
    for lag in (0, 1):
        products = scaled[: steps - lag].T @ scaled[lag:] / (steps - lag)
        np.fill_diagonal(products, products.diagonal() * (lag > 0))
        assert np.max(np.abs(products)) <= 5.5 / np.sqrt(steps - lag)


@pytest.mark.parametrize("microbatch_size", [1, 3, 8, 100])
def test_a_step_is_one_draw_whatever_the_microbatch_size(microbatch_size):
    whole, _ = inclusions(epochs=4, seed=7)
    split, model = inclusions(epochs=4, microbatch_size=microbatch_size, seed=7)
    np.testing.assert_allclose(split, whole, atol=1e-4)
    assert model.optimizer.ledger.num_steps == len(whole) == 20
