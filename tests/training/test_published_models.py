"""Models as the authors of Keras' examples write them train with the README's two lines."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.training.published_models import MODELS

ROWS = 16


def data_of(kind):
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, ROWS)
    if kind in ("image", "same", "twins"):
        images = generator.random((2, ROWS, 12, 12, 3)).astype("float32")
        twins = (list(images), generator.integers(0, 2, (ROWS, 1)).astype("float32"))
        return {"image": (images[0], labels), "same": (images[0], images[0]), "twins": twins}[kind]
    if kind == "ids":
        return generator.integers(0, 50, (ROWS, 16)), labels
    if kind == "pairs":
        ratings = generator.random((ROWS, 1)).astype("float32")
        return generator.integers(0, 50, (ROWS, 2)), ratings
    if kind == "table":
        numbers = generator.normal(size=(ROWS, 5)).astype("float32")
        return {"cat": generator.integers(0, 20, (ROWS, 3)), "num": numbers}, labels
    shape = {"rows": (10,), "wave": (32, 1)}[kind]
    return generator.normal(size=(ROWS, *shape)).astype("float32"), labels


def loss_of(kind):
    if kind in ("pairs", "twins"):
        return keras.losses.BinaryCrossentropy()
    if kind == "same":
        return keras.losses.MeanSquaredError()
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


@pytest.mark.filterwarnings("ignore:.*received `from_logits=True`")
@pytest.mark.parametrize("name", MODELS)
def test_a_published_model_trains_as_it_is(name):
    model, kind = MODELS[name]()
    x, y = data_of(kind)
    before = [np.array(weight) for weight in model.get_weights()]
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-5)
    model.compile(optimizer=optimizer, loss=loss_of(kind), jit_compile=False)
    model.fit(x, y, batch_size=8, epochs=1, verbose=0)
    trained = {id(v) for v in model.trainable_variables}
    for variable, old in zip(model.weights, before, strict=False):
        if id(variable) in trained:
            assert np.any(np.array(variable) != old), variable.path
