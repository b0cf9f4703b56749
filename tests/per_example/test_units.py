"""Means over the rows of units: against batches of one row, and within the clip for any rows."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import oracle
from tests.contracts.checks import losses_of, make_batch
from tests.contracts.layer_cases import LAYER_CASES, build_model
from tests.mechanism.conftest import FILLS, SHAPES, Records
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.per_example.units import MeanOfRows, Units

NAMES = (
    "dense",
    "dense_sequence",
    "dense_shared_materialised",
    "einsum_heads",
    "conv1d_causal",
    "conv2d_strided",
    "conv2d_grouped",
    "conv2d_wide",
    "depthwise2d",
    "embedding",
    "rnn_gru_before",
    "attention",
    "fallback_custom",
)
CASES = [case for case in LAYER_CASES if case.name in NAMES]
# Three units of two rows: of the second one counts alone.
WEIGHTS = np.float32([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75]])


def mean_of_rows(gradients):
    """`(6, ...)` as `(3, ...)`."""
    rows = gradients.reshape(3, 2, *gradients.shape[1:])
    return np.einsum("uk,uk...->u...", WEIGHTS, rows)


def sums_of_products(records):
    """`(3, i, o)`, of the absolute values that are added up in the gradient of a unit."""
    x, d, centre = np.abs(records.x), np.abs(np.float64(records.d)), np.abs(records.centre[:, 0])
    return mean_of_rows(np.einsum("bti,bto->bio", x + centre, d))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_gradient_of_a_unit_is_the_mean_of_those_of_its_rows(case):
    keras.utils.set_random_seed(1)
    model, batch = build_model(case), make_batch(case, 6)
    losses = losses_of(model)
    expected = [mean_of_rows(g) for g in oracle.per_example_gradients(model, losses, batch)]
    found = METHODS["bookkeeping"](model, lambda b: (losses(b), ()), batch).gradients
    found = [MeanOfRows(gradient, tf.constant(WEIGHTS)) for gradient in found]
    factors = np.float32([0.3, 2.0, 0.0])
    scale = np.max(oracle.norms(expected))
    for gradient, exact, parameter in zip(found, expected, describe_parameters(model), strict=True):
        squares = (exact**2).reshape(3, -1).sum(1)
        assert oracle.relative_error(gradient.materialize(), exact, scale) < 2e-5, parameter.path
        assert oracle.relative_error(gradient.squared_norms(), squares, scale**2) < 2e-5
        bounds = np.float64(gradient.squared_norm_bounds())
        assert np.all(bounds >= squares * (1 - 1e-5) - 1e-10 * scale**2)
        total = gradient.weighted_sum(tf.constant(factors))
        assert oracle.relative_error(total, np.tensordot(factors, exact, 1), scale) < 2e-5
        if parameter.role == "kernel" and parameter.view is not None:
            matrices = np.stack([parameter.view.to_matrix(tf.constant(g)) for g in exact])
            r = np.random.default_rng(0).normal(size=(2, matrices.shape[2])).astype(np.float32)
            image = gradient.right(tf.constant(r), parameter.view).materialize()
            exact_image = np.einsum("uio,ko->uki", matrices, r)
            assert oracle.relative_error(image, exact_image) < 5e-5, parameter.path


@pytest.mark.parametrize("fill", sorted(FILLS))
@pytest.mark.parametrize("kind", SHAPES)
def test_no_rows_move_a_unit_beyond_the_clip(kind, fill):
    """Also where they cancel; a row that is not finite costs its unit and no other."""
    records = Records(kind, ["normal", "normal", fill, "normal", fill, fill], seed=3)
    unit = MeanOfRows(records.lazy(), tf.constant(WEIGHTS))
    factors = clip_factors([unit], tf.ones([3]), 0.5).numpy()
    exact = mean_of_rows(records.exact().astype(np.float64))
    if kind.endswith("outer_product"):  # with these positions formed: what is clipped is held
        held = np.float64(unit.materialize())
        if fill not in ("nan", "infinity"):
            assert np.all(np.abs(held - exact) <= 2e-6 * sums_of_products(records) + 1e-36)
        exact = held
    if fill in ("nan", "infinity"):
        assert factors[0] > 0.0 and factors[1] == factors[2] == 0.0
    else:
        assert np.all(factors * oracle.norms([exact]) <= 0.5 * (1 + 1e-5))
    alone = np.eye(3, dtype=np.float32) * factors
    for released in [unit.weighted_sum(tf.constant(one)) for one in alone]:
        assert np.linalg.norm(np.float64(released)) <= 0.5 * (1 + 1e-5)


def test_rows_are_flat_unit_by_unit_and_present_where_they_count():
    units = Units({"x": tf.reshape(tf.range(6), [3, 2])}, tf.constant(WEIGHTS))
    assert units.flat["x"].numpy().tolist() == [0, 1, 2, 3, 4, 5]
    presence = tf.constant([1.0, 1.0, 0.0])
    assert units.of_rows(presence).numpy().tolist() == [1, 1, 1, 0, 0, 0]
