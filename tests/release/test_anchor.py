"""GEP against its pseudocode in numpy, with materialised gradients and QR."""

import numpy as np
import pytest
import tensorflow as tf

from tests import oracle
from tests.release.gep_models import (
    CLASSES,
    CLIPPED,
    FREE,
    PUBLIC,
    batch_of,
    gep,
    grouped,
    images,
    losses_of,
    oracle_groups,
    power_method,
    rows_of,
    started,
    step,
    with_basis,
)
from tf_lowrank_dp.gradient_methods.recorded import bookkeeping
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.mechanism.clipping import unguarded_norms
from tf_lowrank_dp.release.anchor import AnchorSpace
from tf_lowrank_dp.release.coefficient_basis import CoefficientBasis
from tf_lowrank_dp.release.held_basis import HeldBasis
from tf_lowrank_dp.release.public_data import random_labels
from tf_lowrank_dp.training import public_gradients

GROUPS = [[0, 1], [2, 3], [4, 5]]


def public_batch():
    x, y = images(PUBLIC, seed=100)
    return {"x": tf.constant(x), "y": tf.constant(y)}


def lazy_gradients(model, batch):
    losses = losses_of(model)
    return bookkeeping(model, lambda part: (losses(part), ()), batch).gradients


def blocks_of(model, engine, batch, basis):
    return engine.space.project(lazy_gradients(model, batch), basis)


@pytest.mark.parametrize("iterations", [1, 2])
def test_the_subspace_is_that_of_the_power_method_with_qr(iterations):
    model, engine = started()
    space, drawn = engine.space, []

    def recorded(shapes):
        drawn.extend(np.random.default_rng(len(drawn)).normal(size=shape) for shape in shapes)
        return [tf.constant(start, tf.float32) for start in drawn[-len(shapes) :]]

    own = {"num_bases": space.num_bases, "anchors": space._anchors, "normal": recorded}
    space = AnchorSpace(space.parameters, space.groups, power_iterations=iterations, **own)
    bases = space.refresh()
    assert [type(basis) for basis in bases] == [HeldBasis, CoefficientBasis, HeldBasis]
    anchors = oracle_groups(model, public_batch(), GROUPS)
    for basis, start, anchor in zip(bases, drawn, anchors, strict=True):
        start = np.float64(start)
        if isinstance(basis, CoefficientBasis):
            start = start @ anchor
        rows, expected = rows_of(basis), power_method(anchor, start, iterations)
        assert rows.shape == expected.shape
        assert np.linalg.norm(rows.T @ rows - expected.T @ expected, 2) <= 1e-4


def test_embeddings_residual_norms_and_lifted_update_are_those_of_the_pseudocode():
    model, engine = started(**CLIPPED)
    batch, bases = batch_of(7), engine.space.refresh()
    rows = [rows_of(basis) for basis in bases]
    gradients = oracle_groups(model, batch, GROUPS)
    sums, embedding_norms, residual_norms = gep(gradients, rows, 0.5, 0.3)
    assert np.all(embedding_norms > 0.5) and np.all(residual_norms > 0.3)

    embeddings, residuals = blocks_of(model, engine, batch, bases)
    for embedding, gradient, basis in zip(embeddings, gradients, rows, strict=True):
        assert oracle.relative_error(embedding.materialize(), gradient @ basis.T) <= 1e-4
    for residual, gradient, basis in zip(residuals, gradients, rows, strict=True):
        expected = gradient - gradient @ basis.T @ basis
        scale = np.max(np.abs(gradient))
        assert oracle.relative_error(residual.materialize(), expected, scale) <= 1e-4
    np.testing.assert_allclose(unguarded_norms(embeddings), embedding_norms, rtol=1e-4)
    np.testing.assert_allclose(unguarded_norms(residuals), residual_norms, rtol=1e-4)

    released = step(model, with_basis(engine, bases), batch)
    found = grouped([np.float64(t)[None] for t in released], GROUPS)
    for update, total in zip(found, sums, strict=True):
        assert oracle.relative_error(update[0], total / 4.0) <= 1e-4


@pytest.mark.parametrize("microbatch_size", [None, 3])
@pytest.mark.parametrize("refresh_every", [1, 2])
def test_infinite_clips_without_noise_give_the_summed_gradient_over_the_expected_size(
    microbatch_size, refresh_every
):
    model, engine = started(microbatch_size, **FREE, refresh_every=refresh_every)
    batch = batch_of(7)
    gradients = oracle.per_example_gradients(model, losses_of(model), batch)
    for _ in range(2):
        for tensor, expected in zip(step(model, engine, batch), gradients, strict=True):
            assert oracle.relative_error(tensor, expected.sum(0) / 4.0) <= 1e-4


def test_without_the_residual_the_update_is_the_projection():
    model, engine = started(**FREE, residual=False)
    batch, bases = batch_of(5), engine.space.refresh()
    assert len(engine.space.shapes) == 1
    released = step(model, with_basis(engine, bases), batch)
    found = grouped([np.float64(t)[None] for t in released], GROUPS)
    gradients = oracle_groups(model, batch, GROUPS)
    for update, gradient, basis in zip(found, gradients, map(rows_of, bases), strict=True):
        expected = gradient.sum(0) @ basis.T @ basis / 4.0
        assert oracle.relative_error(update[0], expected) <= 1e-4


def test_random_labels_drawn_anew_change_the_basis_and_without_clips_nothing_else():
    model, engine = started(**FREE, public_labels="random")
    batch = batch_of(5)
    first, second = engine.space.refresh(), engine.space.refresh()
    assert not np.allclose(rows_of(first[1]), rows_of(second[1]), atol=1e-3)
    updates = [step(model, with_basis(engine, basis), batch) for basis in (first, second)]
    for one, other in zip(*updates, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def test_random_labels_are_uniform_over_the_classes():
    _, engine = started(public_labels="random")
    labels = random_labels(engine.space._normal, 30_000, CLASSES).numpy()
    counts = np.bincount(labels, minlength=CLASSES)
    assert len(counts) == CLASSES and np.all(np.abs(counts - 10_000) < 4 * np.sqrt(30_000 * 2 / 9))


def test_a_basis_is_kept_for_refresh_every_steps():
    _, engine = started(refresh_every=3)
    rows = [[rows_of(basis) for basis in engine.space.refresh()] for _ in range(7)]
    for number in range(1, 7):
        same = all(
            np.array_equal(a, b) for a, b in zip(rows[number - 1], rows[number], strict=True)
        )
        assert same == (number % 3 != 0)


def test_the_basis_does_not_depend_on_private_examples():
    """Two runs, seeded alike, on different data: the next basis at equal weights is the same."""
    found = []
    for seed in (1, 2):
        model, engine = started(**CLIPPED)
        before = [np.array(w) for w in model.weights]
        step(model, engine, batch_of(6, seed))
        for variable, value in zip(model.weights, before, strict=True):
            np.testing.assert_array_equal(variable, value)
        found.append([rows_of(basis) for basis in engine.space.refresh()])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_public_gradients_in_microbatches_are_the_same():
    spaces = [started(size)[1].space for size in (None, 5)]
    whole, parts = (space._anchors() for space in spaces)
    for one, other in zip(whole, parts, strict=True):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_many_public_examples_are_differentiated_in_parts_by_default(monkeypatch):
    whole = started()[1].space._anchors()
    monkeypatch.setattr(public_gradients, "_AT_ONCE", 7)
    for one, other in zip(whole, started()[1].space._anchors(), strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


def test_gradient_scale_applies_to_anchors_and_private_gradients():
    scale = {"hidden": 0.1, "head": 3.0}
    model, engine = started(**CLIPPED, gradient_scale=scale)
    _, plain = started(**CLIPPED)
    for scaled, anchor, factor in zip(
        engine.space._space._anchors(), plain.space._anchors(), [1, 1, 0.1, 0.1, 3, 3], strict=True
    ):
        np.testing.assert_allclose(scaled[-1], factor * np.array(anchor[-1]), rtol=1e-5, atol=1e-7)
    batch, bases = batch_of(5), engine.space.refresh()
    gradients = [
        g * factor
        for g, factor in zip(oracle_groups(model, batch, GROUPS), (1, 0.1, 3.0), strict=True)
    ]
    sums, _, _ = gep(gradients, [rows_of(basis) for basis in bases], 0.5, 0.3)
    released = step(model, with_basis(engine, bases), batch)
    found = grouped([np.float64(t)[None] for t in released], GROUPS)
    for update, total, factor in zip(found, sums, (1, 0.1, 3.0), strict=True):
        assert oracle.relative_error(update[0], total / factor / 4.0) <= 1e-3


@pytest.mark.parametrize("method", ["reweight", "vectorized", "loop"])
def test_gradient_methods_give_the_same_step(method):
    updates = []
    for name in ("bookkeeping", method):
        model, engine = started(**CLIPPED, gradient_method=name)
        updates.append(step(model, engine, batch_of(5)))
    for one, other in zip(*updates, strict=True):
        assert oracle.relative_error(one, other) <= 1e-3


def test_anchors_that_are_not_finite_or_all_zero_leave_a_usable_basis():
    for value in (np.nan, 0.0):
        model, engine = started(**FREE)
        anchors = [
            tuple(tf.concat([tf.fill(t[:1].shape, value), t[1:] * (value != 0.0)], 0) for t in a)
            for a in engine.space._anchors()
        ]
        engine.space._anchors = lambda anchors=anchors: anchors
        bases = engine.space.refresh()
        assert all(np.all(np.isfinite(rows_of(basis))) for basis in bases)
        batch = batch_of(3)
        gradients = oracle.per_example_gradients(model, losses_of(model), batch)
        for tensor, expected in zip(step(model, engine, batch), gradients, strict=True):
            assert oracle.relative_error(tensor, expected.sum(0) / 4.0) <= 1e-4


def test_the_space_knows_the_parameters_of_the_model_in_order():
    model, engine = started()
    paths = [parameter.path for parameter in describe_parameters(model)]
    assert [parameter.path for parameter in engine.space.parameters] == paths
