"""Rounding in GEP's residual: proven bounds in long double, and batches of other layouts."""

import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.release import coefficient_basis
from tf_lowrank_dp.release.coefficient_basis import CoefficientBasis
from tf_lowrank_dp.release.held_basis import HeldBasis
from tf_lowrank_dp.release.long_vectors import LEAST_RATIO

KINDS = {"held": HeldBasis, "coefficients": CoefficientBasis}
RATIOS = (0.3, 1e-1, 1e-2, 1e-4, 1e-6, 0.0)
SIZE = 1e7  # norm of a gradient whose residual is clipped at 1
INPUTS, OUTPUTS, ANCHORS = 80, 40, 200


def ill_conditioned_anchors(generator):
    """Inputs near a space of 20 dimensions, output gradients of all sizes."""
    x = generator.normal(size=(ANCHORS, 20)) @ generator.normal(size=(20, INPUTS))
    x += 0.05 * generator.normal(size=x.shape)
    d = generator.normal(size=(ANCHORS, 6)) @ generator.normal(size=(6, OUTPUTS))
    d *= 10.0 ** generator.uniform(-3, 0, (ANCHORS, 1))
    d += 1e-3 * generator.normal(size=d.shape)
    return x.astype(np.float32), d.astype(np.float32)


def find(kind, generator, x, d, num_bases):
    def normal(shapes):
        return [tf.constant(generator.normal(size=shape), tf.float32) for shape in shapes]

    return KINDS[kind].find([(tf.constant(x), tf.constant(d))], num_bases, normal, 1)


def nearly_inside(generator, x, d, ratio, count):
    """Records almost proportional to the first anchor, of norm `SIZE`."""
    outputs = d[0] * (1.0 + ratio * generator.normal(size=(count, d.shape[1])))
    outputs *= SIZE / np.linalg.norm(d[0]) / np.linalg.norm(x[0])
    return np.repeat(x[:1], count, axis=0), outputs.astype(np.float32)


def outer_product(x, d):
    return OuterProduct(tf.constant(x[:, None]), tf.constant(d[:, None]))


@pytest.mark.parametrize("least_ratio", [0.0, LEAST_RATIO])
@pytest.mark.parametrize("is_formed", [False, True], ids=["factored", "formed"])
@pytest.mark.parametrize("ratio", RATIOS)
def test_bounds_of_residuals_that_are_not_formed_hold_in_long_double(
    ratio, is_formed, least_ratio, monkeypatch
):
    """Anchors are factored; private gradients are too, or formed as by "vectorized" and "loop".

    The guard against cancelling holds by itself, without the least ratio.
    """
    monkeypatch.setattr(coefficient_basis, "LEAST_RATIO", least_ratio)
    long = np.longdouble
    generator = np.random.default_rng(0)
    x, d = ill_conditioned_anchors(generator)
    basis = find("coefficients", generator, x, d, 100)
    anchors = (long(x)[:, :, None] * long(d)[:, None]).reshape(ANCHORS, -1)
    rows = long(basis.tensors[0].numpy()) @ anchors
    records = nearly_inside(generator, x, d, ratio, 6)
    gradient = outer_product(*records)
    if is_formed:
        gradient = Materialized(gradient.materialize())
        exact = long(gradient.materialize().numpy()).reshape(6, -1)
    else:
        exact = (long(records[0])[:, :, None] * long(records[1])[:, None]).reshape(6, -1)
    embedding, residual = basis.project([gradient])
    np.testing.assert_allclose(
        np.float64(embedding.materialize()), np.float64(exact @ rows.T), atol=1e-5 * SIZE
    )

    w = long(residual._embedding.numpy())  # as computed
    left = exact - w @ rows
    norms = np.sqrt(np.sum(left**2, axis=1))
    bounds = np.sqrt(np.float64(residual.squared_norm_bounds()))
    assert np.all(bounds >= norms) and np.all(bounds >= least_ratio * SIZE * (1 - 1e-5))
    factors = clip_factors([residual], tf.ones([6]), 1.0).numpy()
    for index, one in enumerate(np.diag(factors)):
        released = np.float64(residual.weighted_sum(tf.constant(one)))
        assert np.linalg.norm(released) <= 1 + 1e-5
        assert np.linalg.norm(released - np.float64(factors[index] * left[index])) <= 1e-5


def nearly_outside(generator, x, d, ratio, count):
    """Records whose inputs are almost orthogonal to those of all anchors, of norm `SIZE`."""
    inputs = generator.normal(size=(count, x.shape[1]))
    inside = inputs @ np.linalg.pinv(np.float64(x)) @ np.float64(x)
    inputs += (ratio - 1.0) * inside
    inputs *= SIZE / np.linalg.norm(inputs, axis=1, keepdims=True) / np.linalg.norm(d[0])
    return inputs.astype(np.float32), np.repeat(d[:1], count, axis=0)


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("part", ["embedding", "residual"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_record_releases_hardly_depends_on_the_layout_of_its_batch(kind, part, ratio):
    """The size of a batch, which every record decides, changes the rounding of all others."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 64)).astype(np.float32)
    x[:, 32:] = 0.0
    d = generator.normal(size=(60, 32)).astype(np.float32)
    basis = find(kind, generator, x, d, 60)
    make = nearly_outside if part == "embedding" else nearly_inside
    record = make(generator, x, d, ratio, 1)

    def released(size, place):
        inputs, outputs = (generator.normal(size=(size, n)).astype(np.float32) for n in (64, 32))
        inputs[place], outputs[place] = record[0][0], record[1][0]
        pieces = dict(
            zip(
                ("embedding", "residual"),
                basis.project([outer_product(inputs, outputs)]),
                strict=True,
            )
        )
        factor = clip_factors([pieces[part]], tf.ones([size]), 1.0)[place]
        return np.float64(pieces[part].weighted_sum(factor * tf.one_hot(place, size)))

    alone = released(1, 0)
    for size, place in ((8, 3), (9, 8), (13, 0), (30, 29), (100, 5), (100, 99)):
        assert np.linalg.norm(released(size, place) - alone) <= 1e-4
