"""One clipped step of RGP and LSG against the papers' equations, for every kind of kernel."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tests.release.engines import (
    axes_of,
    batch_for,
    carriers_of,
    losses_of,
    mixed_model,
    private_gradients,
    space_of,
)
from tests.release.references import float64, frozen, matrices, reconstruction, variable

CLIP, SPARSITY = 0.5, 0.4


def images_model():
    """Strided and padded kernels in two and three dimensions."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 4))
    x = keras.layers.Conv2D(6, 3, strides=2, padding="same", activation="tanh", name="two")(inputs)
    x = keras.layers.Reshape((3, 3, 3, 2))(x)
    x = keras.layers.Conv3D(5, (2, 2, 1), name="three")(x)
    return keras.Model(inputs, keras.layers.Dense(3, name="head")(keras.layers.Flatten()(x)))


def tokens_model():
    """A table, which is taken by name, and both kernels of an LSTM."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(9, 6, name="table")(inputs)
    x = keras.layers.LSTM(4, name="lstm")(x)
    return keras.Model(inputs, keras.layers.Dense(3, name="head")(x))


def tokens_for(model):
    generator = np.random.default_rng(0)
    tokens = tf.constant(generator.integers(0, 9, (4, 5)), tf.int32)
    return {"x": tokens, "y": tf.constant(generator.normal(size=(4, 3)), tf.float32)}


MODELS = {
    "dense, attention and sequence convolution": (mixed_model, batch_for),
    "convolutions": (images_model, batch_for),
    "table and recurrent": (tokens_model, tokens_for),
}
METHODS = {
    "rgp weights": (tfdp.RGPOptimizer, {"carriers_from": "weights"}),
    "rgp history": (tfdp.RGPOptimizer, {"carriers_from": "history", "warmup_steps": 0}),
    "rgp random": (tfdp.RGPOptimizer, {"carriers_from": "random"}),
    "rgp left": (tfdp.RGPOptimizer, {"carriers": "left", "carriers_from": "weights"}),
    "rgp right": (tfdp.RGPOptimizer, {"carriers": "right", "carriers_from": "weights"}),
    "lsg": (tfdp.LSGOptimizer, {"sparsity": SPARSITY}),
    "lsg left": (tfdp.LSGOptimizer, {"sparsity": SPARSITY, "carriers": "left"}),
    "lsg right": (tfdp.LSGOptimizer, {"sparsity": SPARSITY, "carriers": "right"}),
}


def kept(v, rows, columns):
    """LSG, Section 3.3: zeros for the rows and columns of unimportant units."""
    weights = np.abs(np.float64(v))
    [matrix] = matrices(weights[None], rows, columns)
    channels = weights.sum(axis=tuple(axis for axis in range(v.ndim) if axis != v.ndim - 2))
    is_convolution = v.ndim > 2 and not v.path.startswith("mha/")
    units = channels if is_convolution else matrix.sum(1)
    found = []
    for importance, size in ((units, matrix.shape[0]), (matrix.sum(0), matrix.shape[1])):
        mask = np.ones(len(importance))
        mask[list(frozen(importance, SPARSITY))] = 0.0
        found.append(np.tile(mask, size // len(mask)))
    return found


def released(g, left, right, carriers, masks):
    """Pieces of each example's gradient, `(b, k, m)` and `(b, k, n)`."""
    rows, columns = masks
    pieces = {
        "left": np.einsum("kn,bmn->bkm", right, g) * rows,
        "right": np.einsum("mk,bmn->bkn", left, g) * columns,
    }
    return [pieces[name] for name in ("left", "right") if carriers in ("both", name)]


def lifted(pieces, left, right, carriers):
    if carriers == "both":
        return reconstruction(*pieces, left, right)
    return pieces[0].T @ right if carriers == "left" else left @ pieces[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_a_clipped_step_is_that_of_the_papers_equations(name, method):
    make_model, make_batch = MODELS[name]
    make, arguments = METHODS[method]
    model = make_model()
    batch = make_batch(model)

    def space():
        optimizer = make(
            rank=2,
            include=["kernel", "embeddings"][: 2 if name.startswith("table") else 1],
            l2_norm_clip=CLIP,
            noise_multiplier=0.0,
            **arguments,
        )
        return optimizer, space_of(optimizer, model, seed=5)

    (optimizer, own), (_, same) = space(), space()
    for index, v in enumerate(model.trainable_variables):  # a history
        v.assign_add(0.3 * np.random.default_rng(index).normal(size=v.shape))
    subspace = carriers_of(same.refresh())
    assert len(subspace) >= 3
    found = private_gradients(optimizer, model, batch, space=own)

    gradients = oracle.per_example_gradients(model, losses_of(model), batch)
    pieces = {}
    for index, (v, g) in enumerate(zip(model.trainable_variables, gradients, strict=True)):
        pieces[index] = [g]
        if index in subspace:
            axes = axes_of(v.path, v.shape)
            carriers = float64([subspace[index].left, subspace[index].right])
            masks = kept(v, *axes) if method.startswith("lsg") else (1.0, 1.0)
            g = matrices(g, *axes)
            pieces[index] = released(g, *carriers, optimizer.carriers, masks)
    squares = sum(
        np.sum(p**2, axis=tuple(range(1, p.ndim))) for block in pieces.values() for p in block
    )
    factors = np.minimum(1.0, CLIP / np.sqrt(squares))
    assert np.min(factors) < 0.9
    expected = []
    for index, v in enumerate(model.trainable_variables):
        sums = [np.tensordot(factors, p, axes=1) for p in pieces[index]]
        if index in subspace:
            carriers = float64([subspace[index].left, subspace[index].right])
            matrix = lifted(sums, *carriers, optimizer.carriers)
            expected.append(variable(matrix, v.shape, *axes_of(v.path, v.shape)))
        else:
            expected.extend(sums)
    scale = max(np.max(np.abs(e)) for e in expected)
    for tensor, reference in zip(found, expected, strict=True):
        assert oracle.relative_error(tensor, reference, scale) <= 1e-5
