"""Stable ranks of known matrices, and of gradients worked out by hand."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tf_lowrank_dp import diagnostics
from tf_lowrank_dp.diagnostics.batch_gradients import gradient_matrices, whole_batch


def test_known_matrices():
    generator = np.random.default_rng(0)
    assert diagnostics.stable_rank(np.eye(5)) == pytest.approx(5)
    assert diagnostics.stable_rank(np.outer([1, 2, 3], [4.0, 5])) == pytest.approx(1)
    assert diagnostics.stable_rank(np.diag([4.0, 2, 2])) == pytest.approx(1.5)
    orthogonal = np.linalg.qr(generator.normal(size=(6, 6)))[0]
    assert diagnostics.stable_rank(orthogonal[:, :4]) == pytest.approx(4)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (1, 9)])
def test_laws(shape, scale):
    matrix = np.random.default_rng(1).normal(size=shape)
    found = diagnostics.stable_rank((scale * matrix).astype("float32"))
    expected = np.linalg.norm(matrix) ** 2 / np.linalg.norm(matrix, 2) ** 2
    assert found == pytest.approx(expected, rel=1e-5)
    assert 1.0 <= found <= min(shape)


@pytest.mark.parametrize("matrix", [np.zeros((3, 2)), np.full((3, 2), np.nan), [[np.inf, 1.0]]])
def test_no_rank_is_nan(matrix):
    assert np.isnan(diagnostics.stable_rank(matrix))


@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (0, 3)])
def test_what_is_no_matrix_is_refused(shape):
    with pytest.raises(ValueError, match=r"Expected a matrix \(m, n\). Received"):
        diagnostics.stable_rank(np.ones(shape))


def test_gradients_are_those_of_the_mean_loss():
    """For a linear layer and the mean squared error, `2 X^T (X W - Y) / (n o)`, weighted."""
    generator = np.random.default_rng(2)
    x, y = (generator.normal(size=(10, n)).astype("float32") for n in (6, 4))
    weight = generator.uniform(size=10).astype("float32")
    model = keras.Sequential(
        [
            keras.Input((6,)),
            keras.layers.Dense(4, use_bias=False, kernel_regularizer="l2", name="d"),
        ]
    )
    model.compile("sgd", loss="mse")
    kernel = np.array(model.trainable_variables[0])
    expected = 2 * x.T @ (weight[:, None] * (x @ kernel - y)) / (10 * 4)
    [gradient] = gradient_matrices(model, whole_batch(x, y, weight)).values()
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)
    [rank] = diagnostics.gradient_stable_ranks(model, x, y, sample_weight=weight).values()
    spectrum = np.linalg.eigvalsh(expected.T @ expected)
    assert rank == pytest.approx(spectrum.sum() / spectrum.max(), rel=1e-4)


@pytest.fixture
def mixed_model():
    model = keras.Sequential(
        [
            keras.Input((5,), dtype="int32"),
            keras.layers.Embedding(7, 8, name="table"),
            keras.layers.Conv1D(3, 2, name="conv"),
            keras.layers.Dropout(0.5),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(2, name="head"),
        ],
        name="mixed",
    )
    model.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model, np.arange(20).reshape(4, 5) % 7, np.array([0, 1, 1, 0])


def test_kernels_by_default_and_others_by_name(mixed_model):
    model, x, y = mixed_model
    names = [path.split("/", 1)[1] for path in diagnostics.gradient_stable_ranks(model, x, y)]
    assert names == ["conv/kernel", "head/kernel"]
    shapes = {
        path.split("/", 1)[1]: matrix.shape
        for path, matrix in gradient_matrices(model, whole_batch(x, y), ["table", "conv"]).items()
    }
    assert shapes == {"table/embeddings": (7, 8), "conv/kernel": (16, 3)}
    with pytest.raises(ValueError, match="(?s)Expected `include`.*Received.*nowhere"):
        diagnostics.gradient_stable_ranks(model, x, y, include=["nowhere"])


def test_looking_draws_no_random_numbers_and_spends_nothing(mixed_model):
    model, x, y = mixed_model
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer, loss=model.loss)
    before = [np.array(v) for v in model.variables]
    first = diagnostics.gradient_stable_ranks(model, x, y)
    assert diagnostics.gradient_stable_ranks(model, x, y) == first
    for value, variable in zip(before, model.variables, strict=True):
        np.testing.assert_array_equal(value, variable)
    assert tfdp.privacy_spent(model, 1e-5) == 0.0


def test_models_that_mix_examples_are_refused():
    layers = [keras.Input((4,)), keras.layers.BatchNormalization(), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.compile("sgd", loss="mse")
    with pytest.raises(tfdp.UnsupportedModelError, match="BatchNormalization"):
        diagnostics.gradient_stable_ranks(model, np.ones((3, 4)), np.ones((3, 2)))
