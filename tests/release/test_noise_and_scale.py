"""The noise of what is released, clipping by layers and `gradient_scale`."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests import oracle
from tests.release.engines import (
    EXACT,
    batch_for,
    dense_model,
    losses_of,
    mixed_model,
    parameter,
    private_gradients,
    space_of,
)
from tests.release.references import float64, projection
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.scaled import ScaledSpace, scales_of
from tf_lowrank_dp.release.selection import groups_of

CLIP, MULTIPLIER = 0.5, 3.0
NOISY = {"l2_norm_clip": CLIP, "noise_multiplier": MULTIPLIER}
ABSENT = np.zeros(2, np.float32)


def released_noise(optimizer, model, monkeypatch, count=6):
    """What the mechanism releases of no examples at all: noise, `(count, shape)` a piece."""
    space, seen = space_of(optimizer, model), []
    lift = type(space).lift

    def watched(self, released, subspace):
        seen.append([[np.float64(tensor) for tensor in block] for block in released])
        return lift(self, released, subspace)

    monkeypatch.setattr(type(space), "lift", watched)
    batch = batch_for(model, 2)
    for seed in range(count):
        private_gradients(
            optimizer, model, batch, space=space, presence=ABSENT, noise_seed=seed + 100
        )
    return [
        np.stack(pieces) for block in zip(*seen, strict=True) for pieces in zip(*block, strict=True)
    ]


@pytest.mark.parametrize("clipping", ["flat", "per_layer"])
@pytest.mark.parametrize(
    "optimizer",
    [
        lambda **kw: tfdp.RGPOptimizer(rank=4, include=["hidden/kernel"], **kw),
        lambda **kw: tfdp.LSGOptimizer(rank=4, include=["hidden/kernel"], **kw),
        lambda **kw: tfdp.RGPOptimizer(rank=4, carriers="left", include=["hidden/kernel"], **kw),
    ],
    ids=["rgp", "lsg", "left"],
)
def test_released_carrier_gradients_have_variance_of_clip_times_multiplier(
    optimizer, clipping, monkeypatch
):
    model = dense_model(60, 50, 30)
    optimizer = optimizer(clipping=clipping, **NOISY)
    noise = released_noise(optimizer, model, monkeypatch)
    shapes = [piece.shape[1:] for piece in noise]
    assert (4, 60) in shapes and ((4, 50) in shapes or optimizer.carriers == "left")
    for piece in noise:
        if piece.size > 1000:
            # The relative error of a variance of n normals is sqrt(2 / n).
            error = 5 * np.sqrt(2 / piece.size)
            assert np.var(piece) == pytest.approx((CLIP * MULTIPLIER) ** 2, rel=error)
            assert abs(np.mean(piece)) <= 5 * CLIP * MULTIPLIER / np.sqrt(piece.size)
    flat = np.concatenate([piece[:, :1].reshape(len(piece), -1) for piece in noise], axis=1)
    assert len(np.unique(flat)) == flat.size  # no number is used twice


@pytest.mark.parametrize("names", [("hidden",), ("hidden", "head")], ids=str)
def test_gradients_are_scaled_before_the_clip_and_scaled_back_after_it(names):
    model = dense_model()
    batch = batch_for(model)
    scale = {"hidden": 0.1, "head": 7.0}
    given = {f"{name}/": scale[name] for name in names}
    released = private_gradients(
        tfdp.DPSGDOptimizer("sgd", gradient_scale=given, l2_norm_clip=CLIP, noise_multiplier=0.0),
        model,
        batch,
    )
    gradients = oracle.per_example_gradients(model, losses_of(model), batch)
    factors = [
        next((scale[name] for name in names if name in v.path), 1.0)
        for v in model.trainable_variables
    ]
    scaled = [g * factor for g, factor in zip(gradients, factors, strict=True)]
    assert np.any(oracle.norms(scaled) > CLIP)
    for tensor, total, factor in zip(
        released, oracle.clipped_sums(scaled, np.ones(4), CLIP), factors, strict=True
    ):
        assert oracle.relative_error(tensor, total / factor) <= 1e-4


def test_gradient_scale_applies_to_the_carriers_gradients():
    model = dense_model(12, 9)
    batch = batch_for(model)

    def optimizer():
        return tfdp.RGPOptimizer(
            rank=2,
            carriers_from="weights",
            include=["hidden/kernel"],
            gradient_scale={"hidden/kernel": 0.1},
            l2_norm_clip=CLIP,
            noise_multiplier=0.0,
        )

    released = private_gradients(optimizer(), model, batch, seed=5)
    carriers = space_of(optimizer(), model, seed=5).refresh()[0]
    left, right = float64([carriers.left, carriers.right])
    gradients = oracle.per_example_gradients(model, losses_of(model), batch)
    pieces = [0.1 * gradients[0] @ right.T, 0.1 * left.T @ gradients[0], *gradients[1:]]
    factors = np.minimum(1.0, CLIP / oracle.norms(pieces))
    assert np.all(factors < 1.0)
    expected = [np.tensordot(factors, g, axes=1) for g in gradients]
    expected[0] = projection(expected[0], left, right)
    for tensor, reference in zip(released, expected, strict=True):
        assert oracle.relative_error(tensor, reference) <= 1e-4


def test_a_scale_has_no_effect_without_a_clip():
    model = mixed_model()
    batch = batch_for(model)
    arguments = {"rank": 2, "carriers_from": "weights", **EXACT}
    scaled = tfdp.LSGOptimizer(gradient_scale={"mha": 0.01, "conv/kernel": 30.0}, **arguments)
    released = private_gradients(scaled, model, batch)
    expected = private_gradients(tfdp.LSGOptimizer(**arguments), model, batch)
    for tensor, reference in zip(released, expected, strict=True):
        assert oracle.relative_error(tensor, reference) <= 1e-5


def test_a_scale_divides_the_noise_of_its_variable():
    model = dense_model(60, 50, 30)
    optimizer = tfdp.DPSGDOptimizer("sgd", gradient_scale={"head/kernel": 0.1}, **NOISY)
    released = private_gradients(optimizer, model, batch_for(model, 2), presence=ABSENT)
    for v, tensor in zip(model.trainable_variables, released, strict=True):
        if "kernel" in v.path:
            scale = 0.1 if "head" in v.path else 1.0
            error = 5 / np.sqrt(2 * np.size(tensor))
            assert np.std(tensor) == pytest.approx(CLIP * MULTIPLIER / scale, rel=error)


class Known(PerExampleGradient):
    """A gradient whose bound is given, whatever it holds."""

    def __init__(self, bound):
        self.bound = tf.constant([bound], tf.float32)

    def squared_norms(self):
        return self.bound

    def squared_norm_bounds(self):
        return self.bound

    def weighted_sum(self, weights):
        raise NotImplementedError

    def materialize(self):
        raise NotImplementedError

    right = left = masked = None


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e-3, 0.1, 3.0, 1e15])
def test_the_bound_of_a_scaled_gradient_is_not_below_its_norm_also_for_tiny_scales(scale):
    bound = 1e37
    space = ScaledSpace(IdentitySpace([parameter(np.zeros(3))], [[0]]), [scale])
    [[scaled]] = space.project([Known(bound)], None)
    true = float(np.float32(scale)) ** 2 * float(np.float32(bound))
    assert float(scaled.squared_norm_bounds()[0]) >= true
    if true < 1e38:
        assert float(scaled.squared_norm_bounds()[0]) <= true * (1 + 1e-5)


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_images_of_scaled_gradients_are_scaled(scale):
    values = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    p = parameter(np.zeros((4, 3)))
    [[scaled]] = ScaledSpace(IdentitySpace([p], [[0]]), [scale]).project(
        [Materialized(tf.constant(values))], None
    )
    r, left, none = tf.ones([2, 3]), tf.ones([4, 2]), tf.zeros([3])
    found = [scaled, scaled.right(r, p.view), scaled.left(left, p.view), scaled.masked(none)]
    right = np.ones((2, 3)) @ np.swapaxes(values, 1, 2)
    expected = [values, right, np.ones((2, 4)) @ values, values * 0.0]
    for image, reference in zip(found, expected, strict=True):
        np.testing.assert_allclose(image.materialize(), scale * reference, atol=1e-5)
        squares = np.sum((scale * reference) ** 2, axis=(1, 2))
        np.testing.assert_allclose(image.squared_norms(), squares, rtol=1e-5)
        total = image.weighted_sum(tf.constant([1.0, 0.5]))
        np.testing.assert_allclose(total, scale * (reference[0] + reference[1] / 2), atol=1e-5)


def test_each_variable_has_the_scale_whose_key_is_part_of_its_path():
    parameters = describe_parameters(dense_model())
    assert scales_of(parameters, {"head": 0.1}) == [1.0, 1.0, 0.1, 0.1]
    assert scales_of(parameters, {"hidden/bias": 2.0, "kernel": 3.0}) == [3.0, 2.0, 3.0, 1.0]
    assert scales_of(parameters, {}) == [1.0] * 4


@pytest.mark.parametrize(
    ("given", "message"),
    [({"classifier": 0.1}, "classifier"), ({"head": 0.1, "kernel": 0.2}, "head/kernel")],
    ids=["no match", "two keys"],
)
def test_keys_that_match_nothing_or_the_same_variable_are_refused(given, message):
    optimizer = tfdp.RGPOptimizer(gradient_scale=given, **EXACT)
    with pytest.raises(ValueError, match=f"(?s)Expected.*Received.*{message}"):
        space_of(optimizer, dense_model())


def test_per_layer_clipping_bounds_the_released_part_of_each_layer():
    """The carriers' gradients of a layer and its bias share one norm."""
    model = mixed_model()
    batch = batch_for(model, 1)
    clip = 1e-3

    def optimizer():
        return tfdp.RGPOptimizer(
            rank=2,
            carriers_from="random",
            clipping="per_layer",
            include=["hidden/kernel", "conv/kernel"],
            exclude=["mha"],
            l2_norm_clip=clip,
            noise_multiplier=0.0,
        )

    released = private_gradients(optimizer(), model, batch, seed=5)
    subspace = space_of(optimizer(), model, seed=5).refresh()
    gradients = [g[0] for g in oracle.per_example_gradients(model, losses_of(model), batch)]
    layers = {}
    for index, v in enumerate(model.trainable_variables):
        layers.setdefault(v.path.rsplit("/", 1)[0], []).append(index)
    assert len(layers) == 7 and set(subspace) == {0, 10}
    for indexes in layers.values():
        pieces = []
        for index in indexes:
            matrix = gradients[index].reshape(-1, gradients[index].shape[-1])
            if index in subspace:
                left, right = float64([subspace[index].left, subspace[index].right])
                pieces += [matrix @ right.T, left.T @ matrix]
                gradients[index] = projection(matrix, left, right).reshape(gradients[index].shape)
            else:
                pieces.append(matrix)
        norm = np.sqrt(sum(np.sum(piece**2) for piece in pieces))
        factor = min(1.0, clip / np.sqrt(len(layers)) / norm)
        for index in indexes:
            reference = factor * gradients[index]
            error = np.max(np.abs(released[index] - reference)) / clip
            assert error <= 1e-3, model.trainable_variables[index].path


def test_per_layer_groups_hold_each_parameter_once():
    parameters = describe_parameters(mixed_model())
    groups = groups_of(parameters, "per_layer")
    assert sorted(sum(groups, [])) == list(range(len(parameters)))
    layers = [{parameters[index].path.rsplit("/", 1)[0] for index in group} for group in groups]
    assert all(len(paths) == 1 for paths in layers) and len(groups) == 7
    assert groups_of(parameters, "flat") == [list(range(len(parameters)))]


def test_a_wrong_scale_is_refused():
    for scale in (0.0, -1.0, float("nan"), float("inf"), 1e20, 1e-20):
        with pytest.raises(ValueError, match="(?s)Expected.*gradient_scale"):
            tfdp.DPSGDOptimizer(keras.optimizers.SGD(), gradient_scale={"head": scale}, **EXACT)
