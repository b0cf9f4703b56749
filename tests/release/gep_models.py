"""A small model whose groups take both kinds of basis, and GEP in plain numpy."""

import keras
import numpy as np
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.release.coefficient_basis import CoefficientBasis
from tf_lowrank_dp.training.start_run import start_run

CLASSES, PUBLIC = 3, 24
FREE = {"embedding_clip": float("inf"), "residual_clip": float("inf"), "noise_multiplier": 0.0}
CLIPPED = {"embedding_clip": 0.5, "residual_clip": 0.3, "noise_multiplier": 0.0}


def gep_model(seed=0):
    """The convolution and the head get rows, the dense layer between them coefficients."""
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            keras.layers.Conv2D(3, 3, activation="tanh", name="conv"),
            keras.layers.Flatten(),
            keras.layers.Dense(20, activation="tanh", name="hidden"),
            keras.layers.Dense(CLASSES, name="head"),
        ]
    )


def images(size, seed=0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(size, 8, 8, 1)).astype(np.float32)
    return x, generator.integers(0, CLASSES, size).astype(np.int32)


def batch_of(size, seed=0):
    x, y = images(size, seed)
    return {"x": tf.constant(x), "y": tf.constant(y)}


def loss():
    return keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def losses_of(model):
    def losses(batch):
        return keras.losses.sparse_categorical_crossentropy(
            batch["y"], model(batch["x"]), from_logits=True
        )

    return losses


def gep_optimizer(inner="sgd", **arguments):
    x, y = images(PUBLIC, seed=100)
    own = {"public_data": x, "public_labels": y, "num_bases": 24, "num_classes": CLASSES, "seed": 5}
    return tfdp.GEPOptimizer(inner, **{**own, **FREE, **arguments})


def compiled(optimizer, microbatch_size=None, **arguments):
    model = tfdp.make_private(gep_model(), microbatch_size=microbatch_size)
    model.compile(optimizer, loss=loss(), **{"jit_compile": False, **arguments})
    return model


def started(microbatch_size=None, batch_size=4, **arguments):
    """A model with a run; its engine has the space, the mechanism and the noise."""
    model = compiled(gep_optimizer(**arguments), microbatch_size)
    run = start_run(model, Sampling.poisson(batch_size=batch_size, num_examples=100), steps=10)
    return model, run.engine


def with_basis(engine, basis):
    """Fixes the basis of an engine."""
    object.__setattr__(engine.space, "refresh", lambda: basis)
    return engine


def step(model, engine, batch, presence=None):
    losses = losses_of(model)
    presence = np.ones(batch["y"].shape[0], np.float32) if presence is None else presence
    return engine.private_gradients(lambda part: (losses(part), ()), batch, tf.constant(presence))


def rows_of(basis):
    """`B (k, p)` in float64, however it is held."""
    if isinstance(basis, CoefficientBasis):
        coefficients, _, anchors = basis.tensors
        formed = [
            np.float64(a[0])
            if len(a) == 1
            else np.einsum("mi,mo->mio", np.float64(a[0]), np.float64(a[1]))
            for a in anchors
        ]
        flat = np.concatenate([f.reshape(len(f), -1) for f in formed], axis=1)
        return np.float64(coefficients) @ flat
    return np.concatenate([np.float64(tensor) for tensor in basis.tensors], axis=1)


def grouped(gradients, groups):
    """`(b, p)` for each group, float64."""
    return [
        np.concatenate([gradients[i].reshape(len(gradients[i]), -1) for i in group], axis=1)
        for group in groups
    ]


def oracle_groups(model, batch, groups):
    return grouped(oracle.per_example_gradients(model, losses_of(model), batch), groups)


def power_method(anchors, start, iterations):
    """GEP, Algorithm 1, lines 3 to 7, float64."""
    rows = np.float64(start)
    for _ in range(iterations):
        rows = (anchors @ rows.T).T @ anchors
        rows = np.linalg.qr(rows.T)[0].T
    return rows


def gep(gradients, bases, embedding_clip, residual_clip):
    """GEP, Algorithm 1, lines 9 to 15 without noise: sums of each group, and both norms."""
    embeddings = [g @ b.T for g, b in zip(gradients, bases, strict=True)]
    residuals = [g - w @ b for g, w, b in zip(gradients, embeddings, bases, strict=True)]
    s = np.minimum(1.0, embedding_clip / oracle.norms(embeddings))
    t = np.minimum(1.0, residual_clip / oracle.norms(residuals))
    sums = [(s @ w) @ b + t @ r for w, b, r in zip(embeddings, bases, residuals, strict=True)]
    return sums, oracle.norms(embeddings), oracle.norms(residuals)
