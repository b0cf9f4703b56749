"""One draw has one release, whichever trainer asks for it."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp


def trainer_of(sampler):
    model = tfdp.make_private(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)]))
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), loss="mse")

    def forward(batch):
        return keras.ops.square(model(batch["x"]))[:, 0], ()

    trainer = tfdp.PrivateTrainer(model, sampler)
    return lambda batch: trainer.apply(trainer.gradients(forward, batch)), model


@pytest.mark.parametrize("iterate", [iter, lambda sampler: iter(sampler.as_dataset())])
def test_two_trainers_take_a_draw_each(iterate):
    """Two models that are released together would have spent more than two draws."""
    sampler = tfdp.PoissonSampler(np.ones((20, 4), "float32"), batch_size=5, steps=4)
    (first, one), (second, other) = trainer_of(sampler), trainer_of(sampler)
    draws = iterate(sampler)
    batch = next(draws)
    first(batch)
    with pytest.raises(RuntimeError, match="by this or another trainer"):
        second(batch)
    assert tfdp.privacy_spent(other, 1e-3) == 0.0
    second(next(draws))
    assert tfdp.privacy_spent(one, 1e-3) == tfdp.privacy_spent(other, 1e-3) > 0
