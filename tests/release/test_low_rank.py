"""RGP and DP-PowerSGD against the papers' formulas in numpy, and their limits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tests.release.engines import (
    EXACT,
    axes_of,
    batch_for,
    dense_model,
    losses_of,
    mixed_model,
    parameter,
    private_gradients,
    space_of,
)
from tests.release.references import (
    float64,
    leading_projection,
    matrices,
    projection,
    reconstruction,
    variable,
)
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.release.low_rank import LowRankSpace
from tf_lowrank_dp.release.power_sgd import PowerSGDSpace

FORMULAS = {
    "both": projection,
    "left": lambda g, left, right: g @ right.T @ right,
    "right": lambda g, left, right: left @ left.T @ g,
}


def summed_gradients(model, batch):
    return [g.sum(0) for g in oracle.per_example_gradients(model, losses_of(model), batch)]


def assert_equal_gradients(found, expected, tolerance=1e-5):
    scale = max(np.max(np.abs(e)) for e in expected)
    for tensor, reference in zip(found, expected, strict=True):
        assert oracle.relative_error(tensor, reference, scale) <= tolerance


@pytest.mark.parametrize("carriers_from", ["weights", "random"])
@pytest.mark.parametrize("carriers", FORMULAS)
def test_without_clip_and_noise_the_gradient_is_the_projection_onto_the_carriers(
    carriers, carriers_from
):
    model = mixed_model()
    batch = batch_for(model)

    def optimizer():
        arguments = {"carriers": carriers, "carriers_from": carriers_from, "include": ["kernel"]}
        return tfdp.RGPOptimizer(rank=2, **arguments, **EXACT)

    subspace = space_of(optimizer(), model, seed=5).refresh()
    released = private_gradients(optimizer(), model, batch, seed=5)
    expected = summed_gradients(model, batch)
    assert len(subspace) == 7
    for index, pair in subspace.items():
        v = model.trainable_variables[index]
        rows, columns = axes_of(v.path, v.shape)
        [matrix] = matrices(expected[index][None], rows, columns)
        projected = FORMULAS[carriers](matrix, *float64([pair.left, pair.right]))
        assert np.linalg.norm(projected - matrix) > 1e-3 * np.linalg.norm(matrix)
        expected[index] = variable(projected, v.shape, rows, columns)
    assert_equal_gradients(released, expected)


@pytest.mark.parametrize("carriers_from", ["history", "weights", "random"])
def test_full_rank_without_clip_and_noise_equals_dpsgd(carriers_from):
    model = mixed_model()
    batch = batch_for(model)
    optimizer = tfdp.RGPOptimizer(
        rank=100, carriers_from=carriers_from, include=["kernel"], **EXACT
    )
    released = private_gradients(optimizer, model, batch)
    assert_equal_gradients(released, summed_gradients(model, batch))
    assert_equal_gradients(
        released, float64(private_gradients(tfdp.DPSGDOptimizer("sgd", **EXACT), model, batch))
    )


@pytest.mark.parametrize("carriers_from", ["history", "weights", "random"])
@pytest.mark.parametrize("carriers", FORMULAS)
def test_lsg_of_sparsity_0_equals_rgp(carriers_from, carriers):
    model = mixed_model()
    batch = batch_for(model)
    arguments = {"carriers_from": carriers_from, "carriers": carriers, "include": ["kernel"]}
    arguments |= {"rank": 2, "l2_norm_clip": 0.5, "noise_multiplier": 1.5}
    rgp = private_gradients(tfdp.RGPOptimizer(**arguments), model, batch)
    lsg = private_gradients(tfdp.LSGOptimizer(sparsity=0.0, **arguments), model, batch)
    # Two graphs, each of which TensorFlow optimises in its own way: equal but for the last bits.
    for tensor, other in zip(lsg, rgp, strict=True):
        np.testing.assert_allclose(tensor, other, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("carriers", FORMULAS)
@pytest.mark.parametrize("shape", [(9, 7), (2, 3, 2, 5)], ids=str)
def test_the_lift_of_noisy_pieces_is_equation_3(shape, carriers):
    generator = np.random.default_rng(2)
    space = LowRankSpace(
        [parameter(generator.normal(size=shape))],
        [[0]],
        ranks={0: 3},
        source=None,
        normal=NoiseGenerator(3).normal,
        carriers=carriers,
    )
    subspace = space.refresh()
    left, right = float64([subspace[0].left, subspace[0].right])
    [shapes] = space.shapes
    pieces = [generator.normal(size=s) for s in shapes]
    [lifted] = space.lift([[tf.constant(p, tf.float32) for p in pieces]], subspace)
    expected = {
        "both": lambda: reconstruction(*pieces, left, right),
        "left": lambda: pieces[0].T @ right,
        "right": lambda: left @ pieces[0],
    }[carriers]()
    np.testing.assert_allclose(lifted, expected.reshape(shape), rtol=1e-4, atol=1e-5)


def test_the_lift_is_a_projection_also_for_a_history_of_zeros():
    """The first step without warm-up: `W_0 - W_0` has no directions at all."""
    model = dense_model(12, 9)
    optimizer = tfdp.RGPOptimizer(rank=3, warmup_steps=0, include=["hidden/kernel"], **EXACT)
    space = space_of(optimizer, model)
    carriers = space.refresh()[0]
    left, right = float64([carriers.left, carriers.right])
    np.testing.assert_allclose(left.T @ left, np.eye(3), atol=1e-5)
    np.testing.assert_allclose(right @ right.T, np.eye(3), atol=1e-5)

    def lifted(g):
        g = np.asarray(g, np.float32)
        pieces = [tf.constant(right @ g.T, tf.float32), tf.constant(left.T @ g, tf.float32)]
        rest = [tf.zeros(v.shape) for v in model.trainable_variables[1:]]
        return np.float64(space.lift([pieces + rest], {0: carriers})[0])

    g = np.random.default_rng(0).normal(size=(12, 9))
    once = lifted(g)
    np.testing.assert_allclose(once, projection(g, left, right), atol=1e-5)
    np.testing.assert_allclose(lifted(once), once, atol=1e-5)


def subspaces(carriers):
    left, right = float64([carriers.left, carriers.right])
    return left @ left.T, right.T @ right


@pytest.mark.parametrize(
    ("carriers_from", "step", "followed"),
    [
        ("weights", 0, "weights"),
        ("weights", 50, "weights"),
        ("history", 0, "weights"),
        ("history", 9, "weights"),
        ("history", 10, "update"),
        ("history", 50, "update"),
    ],
)
def test_carriers_span_the_weights_or_after_the_warmup_the_update(carriers_from, step, followed):
    generator = np.random.default_rng(1)
    low_rank = {
        name: generator.normal(size=(12, 2)) @ generator.normal(size=(2, 9))
        for name in ("weights", "update")
    }
    model = dense_model(12, 9)
    kernel = model.layers[0].kernel
    kernel.assign(low_rank["weights"] - low_rank["update"])  # W_0
    optimizer = tfdp.RGPOptimizer(
        rank=2, carriers_from=carriers_from, warmup_steps=10, include=["hidden/kernel"], **EXACT
    )
    space = space_of(optimizer, model)
    kernel.assign(low_rank["weights"])
    optimizer.iterations.assign(step)
    u, _, v = np.linalg.svd(low_rank[followed])
    left, right = subspaces(space.refresh()[0])
    np.testing.assert_allclose(left, u[:, :2] @ u[:, :2].T, atol=1e-4)
    np.testing.assert_allclose(right, v[:2].T @ v[:2], atol=1e-4)


def test_random_carriers_are_orthonormal_and_new_at_each_step():
    model = mixed_model()
    optimizer = tfdp.RGPOptimizer(rank=2, carriers_from="random", include=["kernel"], **EXACT)
    space = space_of(optimizer, model)
    first, second = space.refresh(), space.refresh()
    for index, carriers in first.items():
        left, right = float64([carriers.left, carriers.right])
        np.testing.assert_allclose(left.T @ left, np.eye(2), atol=1e-5)
        np.testing.assert_allclose(right @ right.T, np.eye(2), atol=1e-5)
        assert np.max(np.abs(left - second[index].left)) > 1e-2
        assert np.max(np.abs(right - second[index].right)) > 1e-2


def test_kernels_of_one_shape_get_carriers_of_their_own():
    generator = np.random.default_rng(0)
    weights = [generator.normal(size=(8, 1)) @ generator.normal(size=(1, 6)) for _ in range(3)]
    parameters = [parameter(w) for w in weights]
    space = LowRankSpace(
        parameters,
        [range(3)],
        ranks={0: 1, 2: 1, 1: 1},
        source=lambda index: parameters[index].matrix(),
        normal=NoiseGenerator(3).normal,
    )
    subspace = space.refresh()
    for index, matrix in enumerate(weights):
        left = np.float64(subspace[index].left)
        np.testing.assert_allclose(left @ (left.T @ matrix), matrix, atol=1e-5)


@pytest.mark.parametrize("depth", [2, 8])
def test_carriers_of_deeper_models_take_no_more_decompositions(depth):
    """Kernels of one shape are one batch, so that tracing hardly grows with depth."""
    model = keras.Sequential([keras.Input((12,)), *[keras.layers.Dense(12) for _ in range(depth)]])
    optimizer = tfdp.RGPOptimizer(rank=2, carriers_from="weights", **EXACT)
    space = space_of(optimizer, model)
    assert len(space.ranks) == depth - 1
    graph = tf.function(lambda: tf.nest.flatten([vars(c) for c in space.refresh().values()]))
    graph = graph.get_concrete_function().graph
    assert sum(op.type == "Qr" for op in graph.get_operations()) == 2


def least_squares(seed=0):
    """Inputs of rank 3, so that gradients have rank 3 (RGP, Proposition 4.1)."""
    generator = np.random.default_rng(seed)
    keras.utils.set_random_seed(seed)
    model = keras.Sequential(
        [keras.Input((10,)), keras.layers.Dense(8, use_bias=False, name="linear")]
    )
    x = generator.normal(size=(20, 3)) @ generator.normal(size=(3, 10))
    y = generator.normal(size=(20, 8))
    return model, {"x": tf.constant(x, tf.float32), "y": tf.constant(y, tf.float32)}


@pytest.mark.parametrize("carriers_from", ["history", "random"])
def test_least_squares_gradients_stay_in_the_subspace_of_the_history(carriers_from):
    """RGP, Proposition 4.1: after one step of descent the residual of the projection is zero."""
    model, batch = least_squares()
    [kernel] = model.trainable_variables
    optimizer = tfdp.RGPOptimizer(
        rank=3, carriers_from=carriers_from, warmup_steps=0, include=["linear"], **EXACT
    )
    space = space_of(optimizer, model)
    rate, residuals = 2e-4, []
    for step in range(8):
        [gradient] = summed_gradients(model, batch)
        assert np.linalg.matrix_rank(gradient, tol=1e-3 * np.linalg.norm(gradient, 2)) == 3
        if step:
            [released] = private_gradients(optimizer, model, batch, space=space)
            residuals.append(np.linalg.norm(released - gradient) / np.linalg.norm(gradient))
        kernel.assign_sub(tf.constant(rate * gradient, tf.float32))
    if carriers_from == "history":
        assert max(residuals) <= 1e-5
    else:
        assert min(residuals) > 0.1


def test_dp_power_sgd_of_full_rank_equals_dpsgd():
    model = mixed_model()
    batch = batch_for(model)
    arguments = {"l2_norm_clip": 0.5, "noise_multiplier": 1.5}
    projected = private_gradients(
        tfdp.DPPowerSGDOptimizer(rank=100, include=["kernel"], **arguments), model, batch
    )
    expected = private_gradients(tfdp.DPSGDOptimizer("sgd", **arguments), model, batch)
    assert_equal_gradients(projected, float64(expected))


def power_sgd(gradient, rank, power_iterations, view=None):
    space = PowerSGDSpace(
        [parameter(np.zeros(gradient.shape), view=view)],
        [[0]],
        ranks={0: rank},
        normal=NoiseGenerator(0).normal,
        power_iterations=power_iterations,
    )
    return np.float64(space.lift([[tf.constant(gradient, tf.float32)]], None)[0])


@pytest.mark.parametrize("shape", [(20, 12), (12, 20)], ids=str)
def test_dp_power_sgd_keeps_a_gradient_of_exact_rank(shape):
    generator = np.random.default_rng(0)
    gradient = generator.normal(size=(shape[0], 3)) @ generator.normal(size=(3, shape[1]))
    lifted = power_sgd(gradient, 3, 1)
    np.testing.assert_allclose(lifted, gradient, atol=1e-4)
    np.testing.assert_allclose(lifted, leading_projection(gradient, 3), atol=1e-4)


def test_dp_power_sgd_projects_onto_the_leading_directions():
    generator = np.random.default_rng(0)
    u = np.linalg.qr(generator.normal(size=(20, 4)))[0]
    v = np.linalg.qr(generator.normal(size=(12, 4)))[0]
    gradient = u * np.array([5.0, 4.0, 1.0, 0.5]) @ v.T
    lifted = power_sgd(gradient, 2, 12)
    np.testing.assert_allclose(lifted, leading_projection(gradient, 2), atol=1e-3)
    assert np.linalg.norm(lifted - gradient) > 1.0


def test_dp_power_sgd_leaves_other_variables_as_they_are():
    model = mixed_model()
    batch = batch_for(model)
    optimizer = tfdp.DPPowerSGDOptimizer(rank=1, exclude=["hidden", "mha"], **EXACT)
    released = private_gradients(optimizer, model, batch)
    expected = summed_gradients(model, batch)
    for v, tensor, gradient in zip(model.trainable_variables, released, expected, strict=True):
        if "conv/kernel" in v.path:
            matrix = np.float64(tensor).reshape(-1, v.shape[-1])
            assert np.linalg.matrix_rank(matrix, tol=1e-3 * np.linalg.norm(matrix, 2)) == 1
        else:
            np.testing.assert_allclose(tensor, gradient, rtol=1e-3, atol=1e-5)
