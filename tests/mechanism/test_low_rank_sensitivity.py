"""Sensitivity of low-rank and sparse releases: one record moves the sum by at most the clip.

What each record adds is recomputed in float64 from the pieces that are released.
"""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tf_lowrank_dp as tfdp
from tests.hostile.harness import tensors_of
from tests.release.engines import (
    batch_for,
    carriers_of,
    mixed_model,
    parameter,
    private_gradients,
    space_of,
)
from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.per_example.convolution import KernelGradient
from tf_lowrank_dp.per_example.kernel_offsets import Geometry
from tf_lowrank_dp.per_example.lookup import Lookup
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.low_rank import LowRankSpace
from tf_lowrank_dp.release.masked import MaskedSpace
from tf_lowrank_dp.release.scaled import ScaledSpace
from tf_lowrank_dp.release.unit_masks import unit_masks
from tf_lowrank_dp.release.weight_masks import weight_masks

SLACK = 1.0 + 1e-5
DENSE, CONVOLUTION, TABLE, BIAS = (14, 12), (2, 2, 3, 5), (7, 4), (12,)
SHAPES = (DENSE, CONVOLUTION, TABLE, BIAS)
MATRICES, POSITIONS = (0, 1, 2), 3
GEOMETRY = Geometry((2, 2), (1, 1), (1, 1), "valid", 1, CONVOLUTION)
FLAT, LAYERS = [[0, 1, 2, 3]], [[0, 3], [1], [2]]

# What the gradient of a record's output may hold; functions of (generator, shape).
FILLS = {
    "normal": lambda g, shape: g.normal(size=shape),
    "zero": lambda g, shape: np.zeros(shape),
    "huge": lambda g, shape: g.normal(size=shape) * 1e20,
    "large": lambda g, shape: g.normal(size=shape) * 1e12,
    "tiny": lambda g, shape: g.normal(size=shape) * 1e-25,
    "ones": lambda g, shape: np.full(shape, 1e3),
    "mixed scales": lambda g, shape: g.normal(size=shape) * 10.0 ** g.integers(-20, 9, shape),
    "nan": lambda g, shape: _one_entry(g, shape, np.nan),
    "infinity": lambda g, shape: _one_entry(g, shape, -np.inf),
    "cancelling": lambda g, shape: _cancelling(g, shape),
}
DIRECTIONS = ("any", "aligned", "orthogonal")


def _one_entry(generator, shape, value):
    values = generator.normal(size=shape)
    values.flat[generator.integers(values.size)] = value
    return values


def _cancelling(generator, shape):
    values = np.repeat(generator.normal(size=(1, *shape[1:])), shape[0], axis=0) * 1e6
    values[1::2] *= -1.0
    return values * (1.0 + 1e-6 * generator.normal(size=shape))


def normal(seed=3):
    return NoiseGenerator(seed).normal


def parameters(seed=0):
    generator = np.random.default_rng(seed)
    return [
        parameter(generator.normal(size=shape), shape[-2] if len(shape) > 2 else None)
        for shape in SHAPES[:3]
    ] + [parameter(np.zeros(BIAS), view=object())]


def low_rank(groups=FLAT, **kwargs):
    return LowRankSpace(
        parameters(),
        groups,
        ranks=dict.fromkeys(MATRICES, 2),
        source=None,
        normal=normal(),
        **kwargs,
    )


def sparse_low_rank(groups=FLAT, carriers="both"):
    found = parameters()
    space = LowRankSpace(
        found,
        groups,
        ranks=dict.fromkeys(MATRICES, 2),
        source=lambda index: found[index].matrix(),
        normal=normal(),
        carriers=carriers,
    )
    return MaskedSpace(space, unit_masks(space, 0.5, "weights", normal()))


def coordinates(unit, groups=FLAT):
    found = parameters()
    masks = weight_masks(found, MATRICES, 0.5, unit)
    return MaskedSpace(IdentitySpace(found, groups), masks)


SPACES = {
    "rgp": low_rank,
    "rgp left": lambda: low_rank(carriers="left"),
    "rgp per layer": lambda: low_rank(LAYERS),
    "rgp scaled": lambda: ScaledSpace(low_rank(), [0.1, 1.0, 30.0, 1e-3]),
    "lsg": sparse_low_rank,
    "lsg right": lambda: sparse_low_rank(carriers="right"),
    "lsg per layer, scaled": lambda: ScaledSpace(sparse_low_rank(LAYERS), [0.1, 7.0, 1.0, 1.0]),
    "sparse weight": lambda: coordinates("weight"),
    "sparse neuron": lambda: coordinates("neuron"),
    "sparse neuron per layer": lambda: coordinates("neuron", LAYERS),
}


def towards(values, basis, direction):
    """The part of the last axis inside, or outside, of the span of orthonormal rows."""
    inside = values @ basis.T @ basis
    return {"any": values, "aligned": inside, "orthogonal": values - inside}[direction]


def gradients_of(records, seed, subspace):
    """Lazy gradients of the four variables for records of (fill, fill of inputs, direction)."""
    generator = np.random.default_rng(seed)
    x, d, images, conv_d, ids, table_d, bias = ([] for _ in range(7))
    known = carriers_of(subspace) or {}
    carriers = [known.get(index) for index in MATRICES]
    rights = [getattr(c, "right", None) for c in carriers]
    left = getattr(carriers[0], "left", None)

    def output(fill, shape, right, direction):
        values = FILLS[fill](generator, shape)
        return values if right is None else towards(values, np.float64(right), direction)

    with np.errstate(all="ignore"):
        for fill, inputs, direction in records:
            equal = np.repeat(generator.normal(size=(1, DENSE[0])), POSITIONS, axis=0)
            values = equal if inputs == "equal" else FILLS[inputs](generator, equal.shape)
            x.append(values if left is None else towards(values, np.float64(left).T, direction))
            d.append(output(fill, (POSITIONS, DENSE[1]), rights[0], direction))
            images.append(generator.normal(size=(3, 3, 3)))
            conv_d.append(output(fill, (2, 2, 5), rights[1], direction))
            ids.append(generator.integers(0, 2, POSITIONS))
            table_d.append(output(fill, (POSITIONS, TABLE[1]), rights[2], direction))
            bias.append(FILLS[fill](generator, BIAS))
        arrays = [np.float32(a) for a in (x, d, images, conv_d, table_d, bias)]
    x, d, images, conv_d, table_d, bias = map(tf.constant, arrays)
    return [
        OuterProduct(x, d),
        KernelGradient(GEOMETRY, images, conv_d),
        Lookup(tf.constant(ids, tf.int32), table_d, TABLE[0]),
        Materialized(bias),
    ]


def added(block, factors):
    """What each record adds to a block, float64 `(b, numbers)`; a factor of 0 adds nothing."""
    factors = np.float64(factors)[:, None]
    pieces = [np.float64(piece.materialize()).reshape(len(factors), -1) for piece in block]
    with np.errstate(invalid="ignore"):
        return np.where(factors == 0.0, 0.0, np.concatenate(pieces, axis=1) * factors)


inputs = st.sampled_from([*FILLS, "equal", "equal"])
records = st.lists(
    st.tuples(st.sampled_from(sorted(FILLS)), inputs, st.sampled_from(DIRECTIONS)),
    min_size=1,
    max_size=4,
)
relaxed = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("name", SPACES)
@relaxed
@given(
    records=records,
    copies=st.integers(1, 2),
    seed=st.integers(0, 2**32 - 1),
    clip=st.sampled_from([1e-3, 1.0, 1e4]),
)
def test_adding_or_removing_a_record_moves_the_release_by_at_most_the_clip(
    name, records, copies, seed, clip
):
    space = SPACES[name]()
    subspace = space.refresh()
    records, size = records * copies, len(records) * copies
    blocks = space.project(gradients_of(records, seed, subspace), subspace)
    mechanism = GaussianMechanism(clip, 0.0, len(space.shapes))
    removed = seed % size
    present = tf.ones([size]), tf.one_hot(removed, size, 0.0, 1.0)
    everyone, neighbour = (
        [added(block, clip_factors(block, p, mechanism.block_clips[0])) for block in blocks]
        for p in present
    )
    norms = np.sqrt(sum(np.sum(block**2, axis=1) for block in everyone))
    assert np.all(norms <= clip * SLACK)
    moved = sum(
        np.sum((a.sum(0) - b.sum(0)) ** 2) for a, b in zip(everyone, neighbour, strict=True)
    )
    assert np.sqrt(moved) <= clip * SLACK
    # The float32 sums that the mechanism releases are these.
    sums = mechanism.clipped_sums(blocks, present[0])
    for block, exact in zip(sums, everyone, strict=True):
        flat = np.concatenate([np.float64(tensor).reshape(-1) for tensor in block])
        assert np.max(np.abs(flat - exact.sum(0))) <= 5e-3 * size * clip


@pytest.mark.parametrize("direction", ["aligned", "orthogonal"])
@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e8, 1e15])
def test_records_along_and_across_the_carriers_are_clipped(direction, scale):
    """The image of a record across the carriers is rounding, which is clipped as what it is."""
    space = low_rank()
    subspace = space.refresh()
    generator = np.random.default_rng(0)
    right, left = np.float64(subspace[0].right), np.float64(subspace[0].left)
    d = towards(generator.normal(size=(6, POSITIONS, DENSE[1])), right, direction) * scale
    x = towards(generator.normal(size=(6, POSITIONS, DENSE[0])), left.T, direction)
    gradient = OuterProduct(tf.constant(x, tf.float32), tf.constant(d, tf.float32))
    block = space.pieces(0, gradient, subspace)
    factors = clip_factors(block, tf.ones([6]), 0.1)
    norms = np.linalg.norm(added(block, factors), axis=1)
    assert np.all(norms <= 0.1 * SLACK)
    if direction == "aligned" and scale >= 1.0:
        np.testing.assert_allclose(norms, 0.1, rtol=1e-2)


MIXED = {"rank": 2, "include": ["kernel"], "carriers_from": "weights"}
OPTIMIZERS = {
    "rgp": lambda **kw: tfdp.RGPOptimizer(**MIXED, **kw),
    "rgp random": lambda **kw: tfdp.RGPOptimizer(**MIXED | {"carriers_from": "random"}, **kw),
    "lsg": lambda **kw: tfdp.LSGOptimizer(**MIXED, sparsity=0.5, **kw),
    "sparse": lambda **kw: tfdp.SparseDPSGDOptimizer(unit="neuron", sparsity=0.5, **kw),
    "per layer": lambda **kw: tfdp.RGPOptimizer(**MIXED, clipping="per_layer", **kw),
    "scaled": lambda **kw: tfdp.LSGOptimizer(**MIXED, gradient_scale={"head": 0.1}, **kw),
    "power sgd": lambda **kw: tfdp.DPPowerSGDOptimizer(rank=2, include=["kernel"], **kw),
}
HOSTILE = {
    "nan": np.nan,
    "infinity": np.inf,
    "huge": 1e20,
    "large": 1e6,
    "tiny": 1e-25,
    "zero": 0.0,
    "duplicate": 1.0,
}


def observed(optimizer, model, batch, presence, monkeypatch):
    """The subspace and the sums before the noise of one step, with fixed public randomness."""
    space, seen = space_of(optimizer, model, seed=4), {}
    for name in ("refresh", "lift"):
        original = getattr(type(space), name)

        def watched(self, *args, name=name, original=original):
            result = original(self, *args)
            seen.setdefault(name, result if name == "refresh" else args[0])
            return result

        monkeypatch.setattr(type(space), name, watched)
    private_gradients(optimizer, model, batch, space=space, presence=presence)
    monkeypatch.undo()
    return seen["refresh"], seen["lift"]


def hostile_batch(model):
    """Three ordinary records, then the hostile ones."""
    batch = batch_for(model, 3 + len(HOSTILE))
    x = batch["x"].numpy()
    for index, value in enumerate(HOSTILE.values(), start=3):
        x[index] = x[0] * np.float32(value)
    return {"x": tf.constant(x), "y": batch["y"]}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_no_hostile_record_of_a_model_moves_the_release_by_more_than_the_clip(name, monkeypatch):
    model = mixed_model()
    batch, size = hostile_batch(model), 3 + len(HOSTILE)
    optimizer = OPTIMIZERS[name](l2_norm_clip=0.3, noise_multiplier=0.0)

    def sums(presence):
        presence = np.float32(presence)
        _, released = observed(optimizer, model, batch, presence, monkeypatch)
        return np.concatenate([np.float64(t).reshape(-1) for block in released for t in block])

    only_ordinary = np.arange(size) < 3
    base = sums(only_ordinary)
    assert np.linalg.norm(base) > 0.1
    for index, hostile in enumerate(HOSTILE, start=3):
        moved = np.linalg.norm(sums(only_ordinary | (np.arange(size) == index)) - base)
        # The sums are float32: a few roundings of numbers of the size of the clip.
        assert moved <= 0.3 * (1 + 1e-4), hostile
        if hostile in ("nan", "infinity"):
            assert moved <= 1e-5


@pytest.mark.parametrize("name", sorted(set(OPTIMIZERS) - {"power sgd"}))
def test_the_subspace_does_not_depend_on_the_private_data(name, monkeypatch):
    model = mixed_model()
    hostile = hostile_batch(model)
    size = hostile["x"].shape[0]
    found = []
    for batch, presence in [
        (hostile, np.ones(size, np.float32)),
        (batch_for(model, size, seed=9), np.ones(size, np.float32)),
        (batch_for(model, size, seed=9), np.zeros(size, np.float32)),
    ]:
        optimizer = OPTIMIZERS[name](l2_norm_clip=0.3, noise_multiplier=1.0)
        subspace, _ = observed(optimizer, model, batch, presence, monkeypatch)
        found.append([np.asarray(tensor) for tensor in tensors_of(subspace)])
    if name == "sparse":  # masks themselves, not carriers
        assert all(set(np.unique(mask)) == {0.0, 1.0} for mask in found[0])
    for other in found[1:]:
        for tensor, first in zip(other, found[0], strict=True):
            np.testing.assert_array_equal(tensor, first)
