"""How often `fit` traces a step: once, whatever metrics make variables of their own."""

from unittest import mock

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.release.anchor import AnchorSpace


def outputs(x, names):
    return {name: keras.layers.Dense(1, "sigmoid", name=name)(x) for name in names}


CASES = {
    "none": (["a"], []),
    "by name": (["a"], ["accuracy"]),
    "several": (["a"], ["auc", keras.metrics.Precision()]),
    "one with the shape of its inputs": (["a"], [keras.metrics.R2Score()]),
    "of two outputs": (["a", "b"], {"a": ["mae"], "b": ["accuracy"]}),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_step_is_traced_once_for_draws_of_any_size(name, jit_compile):
    names, metrics = CASES[name]
    x = keras.Input((4,))
    found = outputs(x, names)
    model = keras.Model(x, found if len(names) > 1 else found["a"])
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0)
    loss = "binary_crossentropy"
    if len(names) > 1:
        loss = dict.fromkeys(names, loss)
    model.compile(optimizer, loss=loss, metrics=metrics, jit_compile=jit_compile)
    y = {each: np.arange(24) % 2 for each in names} if len(names) > 1 else np.arange(24) % 2
    traced = PrivateGradients.private_gradients
    with mock.patch.object(PrivateGradients, "private_gradients", autospec=True) as step:
        step.side_effect = traced
        history = model.fit(np.ones((24, 4)), y, batch_size=3, epochs=2, verbose=0).history
    assert step.call_count == 1
    assert all(np.isfinite(values).all() for values in history.values())


def test_a_step_that_keeps_its_basis_is_traced_once_and_so_are_the_public_gradients():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    tfdp.make_private(model)
    optimizer = tfdp.GEPOptimizer(
        "sgd",
        public_data=np.random.default_rng(0).normal(size=(20, 4)).astype("float32"),
        num_classes=3,
        num_bases=2,
        refresh_every=5,
        embedding_clip=1.0,
        residual_clip=1.0,
        noise_multiplier=1.0,
    )
    model.compile(optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    steps = mock.patch.object(PrivateGradients, "private_gradients", autospec=True)
    bases = mock.patch.object(AnchorSpace, "new_bases", autospec=True)
    original, found = PrivateGradients.private_gradients, AnchorSpace.new_bases
    with steps as step, bases as basis:
        step.side_effect, basis.side_effect = original, found
        model.fit(np.ones((24, 4)), np.arange(24) % 3, batch_size=3, verbose=0)
    assert (step.call_count, basis.call_count) == (1, 1)
