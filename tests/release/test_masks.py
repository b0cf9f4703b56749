"""Which units and weights are frozen, and that nothing of them is clipped, noised or used."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tests.release.engines import (
    EXACT,
    HEADS,
    axes_of,
    batch_for,
    dense_model,
    losses_of,
    mixed_model,
    parameter,
    private_gradients,
    space_of,
)
from tests.release.references import float64, frozen, matrices, reconstruction, variable
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.parameter import MatrixView
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.low_rank import LowRankSpace
from tf_lowrank_dp.release.masked import MaskedSpace
from tf_lowrank_dp.release.masks import important_columns, important_rows, largest, largest_weights
from tf_lowrank_dp.release.unit_masks import unit_masks
from tf_lowrank_dp.release.weight_masks import weight_masks

SPARSITIES = (0.0, 0.1, 0.3, 0.5, 0.77, 0.99)
SCORES = {
    "different": lambda size: np.random.default_rng(size).normal(size=size),
    "all equal": lambda size: np.ones(size),
    "ties": lambda size: np.arange(size) % 3,
    "zero": lambda size: np.zeros(size),
}


@pytest.mark.parametrize("sparsity", SPARSITIES)
@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_exactly_the_floor_of_the_fraction_is_frozen_ties_or_not(size, scores, sparsity):
    values = SCORES[scores](size)
    mask = largest(tf.constant(values, tf.float32), sparsity).numpy()
    assert set(np.unique(mask)) <= {0.0, 1.0}
    assert np.sum(mask == 0.0) == int(np.floor(sparsity * size))
    if np.any(mask == 0.0):
        assert np.max(values[mask == 0.0]) <= np.min(values[mask == 1.0])


def zeros_of(mask):
    return set(np.flatnonzero(np.asarray(mask) == 0.0).tolist())


@pytest.mark.parametrize("sparsity", [0.3, 0.5])
def test_importance_of_a_dense_unit_is_the_sum_of_its_magnitudes(sparsity):
    w = np.random.default_rng(0).normal(size=(11, 7))
    p = parameter(w)
    rows = important_rows(p.matrix(), p.view, sparsity)
    assert zeros_of(rows) == frozen(np.sum(np.abs(w), axis=1), sparsity)
    columns = important_columns(p.matrix(), sparsity)
    assert zeros_of(columns) == frozen(np.sum(np.abs(w), axis=0), sparsity)


@pytest.mark.parametrize("sparsity", [0.3, 0.5])
@pytest.mark.parametrize("groups", [1, 2])
def test_importance_of_a_convolution_is_summed_over_its_offsets_per_channel(sparsity, groups):
    """LSG, Equations 6 and 7; all offsets of an input channel are frozen together."""
    layer = keras.layers.Conv2D(8, (3, 2), groups=groups, name="conv")
    model = keras.Sequential([keras.Input((5, 5, 6)), layer, keras.layers.Dense(2)])
    w = np.random.default_rng(0).normal(size=layer.kernel.shape)
    layer.kernel.assign(w)
    optimizer = tfdp.LSGOptimizer(rank=1, sparsity=sparsity, include=["conv/kernel"], **EXACT)
    rows, columns = space_of(optimizer, model).refresh()[1][0]
    channels = np.asarray(rows).reshape(3 * 2, 6 // groups)
    assert all(zeros_of(channel) in (set(), set(range(6))) for channel in channels.T)
    assert zeros_of(channels[0]) == frozen(np.sum(np.abs(w), axis=(0, 1, 3)), sparsity)
    assert zeros_of(columns) == frozen(np.sum(np.abs(w), axis=(0, 1, 2)), sparsity)


def test_importance_of_attention_heads_is_that_of_their_matrix():
    w = np.random.default_rng(0).normal(size=(6, 2, 5))
    p = parameter(w, view=MatrixView((6, 2, 5), *HEADS, 6))
    rows = important_rows(p.matrix(), p.view, 0.5)
    assert zeros_of(rows) == frozen(np.sum(np.abs(w), axis=(1, 2)), 0.5)
    columns = important_columns(p.matrix(), 0.3)
    assert zeros_of(columns) == frozen(np.sum(np.abs(w), axis=0).reshape(-1), 0.3)


def test_importance_of_a_weight_is_its_magnitude():
    w = np.random.default_rng(0).normal(size=(5, 4))
    mask = largest_weights(tf.constant(w, tf.float32), 0.6).numpy()
    assert zeros_of(mask.reshape(-1)) == frozen(np.abs(w).reshape(-1), 0.6)


def lsg_space(shape, sparsity=0.5, masks_from="weights", carriers="both"):
    generator = np.random.default_rng(1)
    input_units = shape[-2] if len(shape) > 2 else None
    normal = NoiseGenerator(3).normal
    space = LowRankSpace(
        [parameter(generator.normal(size=shape), input_units)],
        [[0]],
        ranks={0: 3},
        source=None,
        normal=normal,
        carriers=carriers,
    )
    return MaskedSpace(space, unit_masks(space, sparsity, masks_from, normal))


def arrays_of(subspace):
    """`L`, `R` and the masks that there are."""
    carriers, masks = subspace
    return float64([carriers[0].left, carriers[0].right, *masks[0]])


@pytest.mark.parametrize("carriers", ["both", "left", "right"])
@pytest.mark.parametrize("shape", [(9, 8), (2, 3, 4, 6)], ids=str)
def test_norms_and_sums_are_those_of_the_important_rows_and_columns(shape, carriers):
    space = lsg_space(shape, carriers=carriers)
    subspace = space.refresh()
    left, right, *masks = arrays_of(subspace)
    names = ["left", "right"] if carriers == "both" else [carriers]
    mask_of = dict(zip(names, masks, strict=True))
    assert all(np.any(mask == 0) for mask in masks)
    g = np.random.default_rng(2).normal(size=(5, *shape))
    matrix = g.reshape(5, -1, shape[-1])
    expected = {
        "left": np.einsum("ko,bio->bki", right, matrix),
        "right": np.einsum("ik,bio->bko", left, matrix),
    }
    expected = {name: expected[name] * mask for name, mask in mask_of.items()}
    [block] = space.project([Materialized(tf.constant(g, tf.float32))], subspace)
    weights = np.array([1.0, 0.5, 0.0, 0.25, 1.0])
    for piece, name in zip(block, names, strict=True):
        squares = np.sum(expected[name] ** 2, axis=(1, 2))
        np.testing.assert_allclose(piece.squared_norms(), squares, rtol=1e-5)
        np.testing.assert_allclose(piece.materialize(), expected[name], atol=1e-5)
        total = piece.weighted_sum(tf.constant(weights, tf.float32))
        np.testing.assert_allclose(
            total, np.tensordot(weights, expected[name], axes=1), rtol=1e-4, atol=1e-5
        )


def test_frozen_rows_and_columns_get_neither_gradient_nor_noise_in_the_lift():
    space = lsg_space((9, 8))
    subspace = space.refresh()
    left, right, rows, columns = arrays_of(subspace)
    noisy = [np.random.default_rng(n).normal(size=s) for n, s in enumerate(space.shapes[0])]
    [lifted] = space.lift([[tf.constant(p, tf.float32) for p in noisy]], subspace)
    expected = reconstruction(noisy[0] * rows, noisy[1] * columns, left, right)
    np.testing.assert_allclose(lifted, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("carriers", ["left", "right"])
def test_with_one_carrier_frozen_units_are_not_updated_at_all(carriers):
    model = dense_model(12, 10)
    optimizer = tfdp.LSGOptimizer(
        rank=2, carriers=carriers, include=["hidden/kernel"], l2_norm_clip=1.0, noise_multiplier=5.0
    )
    kernel = np.float64(model.layers[0].kernel)
    gradient = np.asarray(private_gradients(optimizer, model, batch_for(model))[0])
    axis = {"left": 1, "right": 0}[carriers]
    units = frozen(np.sum(np.abs(kernel), axis=axis), 0.5)
    changed = np.any(gradient != 0, axis=axis)
    assert zeros_of(changed) == units


@pytest.mark.parametrize("step", [0, 2, 3, 10])
def test_units_are_frozen_from_the_start_step_on(step):
    model = dense_model(12, 10)
    optimizer = tfdp.LSGOptimizer(
        rank=2, sparsity=0.5, sparsity_start_step=3, include=["hidden/kernel"], **EXACT
    )
    space = space_of(optimizer, model)
    optimizer.iterations.assign(step)
    rows, columns = space.refresh()[1][0]
    assert np.sum(np.asarray(rows) == 0) == (6 if step >= 3 else 0)
    assert np.sum(np.asarray(columns) == 0) == (5 if step >= 3 else 0)


def test_masks_follow_the_weights_of_the_step():
    space = lsg_space((9, 8))
    [p] = space.parameters
    for seed in range(2):
        w = np.random.default_rng(seed).normal(size=(9, 8))
        p.variable.assign(w)
        rows, _ = space.refresh()[1][0]
        assert zeros_of(rows) == frozen(np.sum(np.abs(w), axis=1), 0.5)


def test_masks_from_carriers_take_importance_from_the_entries_of_the_carriers():
    subspace = lsg_space((9, 8), masks_from="carriers").refresh()
    left, right, rows, columns = arrays_of(subspace)
    assert zeros_of(rows) == frozen(np.sum(np.abs(left), axis=1), 0.5)
    assert zeros_of(columns) == frozen(np.sum(np.abs(right), axis=0), 0.5)


def test_random_masks_freeze_as_many_units_others_at_each_step():
    space = lsg_space((2, 3, 20, 30), masks_from="random")
    drawn = [space.refresh()[1][0] for _ in range(2)]
    for rows, columns in drawn:
        channels = np.asarray(rows).reshape(6, 20)
        assert all(np.array_equal(channels[0], offset) for offset in channels)
        assert np.sum(channels[0] == 0) == 10 and np.sum(np.asarray(columns) == 0) == 15
    for one, other in zip(*drawn, strict=True):
        assert zeros_of(one) != zeros_of(other)


def kept_by_numpy(kernel, unit, sparsity, rows, columns):
    [matrix] = matrices(np.abs(np.float64(kernel))[None], rows, columns)
    mask = np.ones(matrix.shape)
    if unit == "weight":
        mask.reshape(-1)[list(frozen(matrix.reshape(-1), sparsity))] = 0.0
    else:
        mask[:, list(frozen(matrix.sum(0), sparsity))] = 0.0
    return variable(mask, kernel.shape, rows, columns)


@pytest.mark.parametrize("clip", [float("inf"), 0.3])
@pytest.mark.parametrize("unit", ["weight", "neuron"])
def test_sparse_dpsgd_clips_and_releases_the_gradients_of_large_weights(unit, clip):
    model = mixed_model()
    batch = batch_for(model)
    optimizer = tfdp.SparseDPSGDOptimizer(
        sparsity=0.4, unit=unit, l2_norm_clip=clip, noise_multiplier=0.0
    )
    released = private_gradients(optimizer, model, batch)
    gradients = oracle.per_example_gradients(model, losses_of(model), batch)
    for index, v in enumerate(model.trainable_variables):
        if "kernel" in v.path and "head" not in v.path:
            gradients[index] *= kept_by_numpy(v, unit, 0.4, *axes_of(v.path, v.shape))
    expected = oracle.clipped_sums(gradients, np.ones(4), clip)
    scale = max(np.max(np.abs(e)) for e in expected)
    for tensor, reference in zip(released, expected, strict=True):
        assert oracle.relative_error(tensor, reference, scale) <= 1e-4
        assert np.all(np.asarray(tensor)[reference == 0.0] == 0.0)


@pytest.mark.parametrize("unit", ["weight", "neuron"])
def test_sparse_dpsgd_adds_no_noise_to_frozen_weights(unit):
    model = mixed_model()
    optimizer = tfdp.SparseDPSGDOptimizer(
        sparsity=0.4, unit=unit, l2_norm_clip=1.0, noise_multiplier=3.0
    )
    absent = np.zeros(4, np.float32)
    released = private_gradients(optimizer, model, batch_for(model), presence=absent)
    for v, tensor in zip(model.trainable_variables, released, strict=True):
        kept = np.ones(v.shape)
        if "kernel" in v.path and "head" not in v.path:
            kept = kept_by_numpy(v, unit, 0.4, *axes_of(v.path, v.shape))
        np.testing.assert_array_equal(np.asarray(tensor) != 0.0, kept != 0.0)


@pytest.mark.parametrize("unit", ["weight", "neuron"])
def test_sparse_dpsgd_of_sparsity_0_equals_dpsgd(unit):
    model = mixed_model()
    batch = batch_for(model)
    arguments = {"l2_norm_clip": 0.3, "noise_multiplier": 1.0}
    sparse = tfdp.SparseDPSGDOptimizer(sparsity=0.0, unit=unit, **arguments)
    expected = private_gradients(tfdp.DPSGDOptimizer("sgd", **arguments), model, batch)
    for tensor, reference in zip(private_gradients(sparse, model, batch), expected, strict=True):
        np.testing.assert_allclose(tensor, reference, rtol=1e-4, atol=1e-5)


def test_a_mask_of_coordinates_follows_the_weights_of_the_step():
    p = parameter(np.zeros((4, 3)))
    space = MaskedSpace(IdentitySpace([p], [[0]]), weight_masks([p], [0], 0.5, "weight"))
    for seed in range(2):
        w = np.random.default_rng(seed).normal(size=(4, 3))
        p.variable.assign(w)
        mask = np.asarray(space.refresh()[1][0][0])
        assert zeros_of(mask.reshape(-1)) == frozen(np.abs(w).reshape(-1), 0.5)
