"""What GEP's subspace misses, against per-example gradients of the oracle and numpy."""

import keras
import numpy as np
import pytest

import tf_lowrank_dp as tfdp
from tests.release.gep_models import (
    CLASSES,
    CLIPPED,
    PUBLIC,
    batch_of,
    compiled,
    gep_model,
    gep_optimizer,
    images,
    oracle_groups,
)
from tf_lowrank_dp import diagnostics

GROUPS = [[0, 1], [2, 3], [4, 5]]
NOISY = {"noise_multiplier": 1.3, "embedding_clip": 0.7, "residual_clip": 0.4}


def batch_arrays(size, seed=0):
    return {name: np.array(tensor) for name, tensor in batch_of(size, seed).items()}


def stable_rank(matrix):
    values = np.linalg.svd(matrix, compute_uv=False)
    return np.sum(values**2) / values[0] ** 2


def test_stable_ranks_of_gradients_are_those_of_the_oracle():
    model = compiled(gep_optimizer(**CLIPPED))
    found = diagnostics.anchor_residuals(model, **batch_arrays(7))
    groups = oracle_groups(model, batch_of(7), GROUPS)
    assert len(found) == 4
    for figures, matrix in zip(found.values(), [*groups, np.hstack(groups)], strict=True):
        assert figures.gradient_stable_rank == pytest.approx(stable_rank(matrix), rel=1e-3)


def test_with_all_directions_of_the_anchors_the_residual_is_what_their_span_misses():
    """As many bases as public examples: the subspace is known without any power method."""
    model = compiled(gep_optimizer(num_bases=3 * PUBLIC, **CLIPPED))
    found = diagnostics.anchor_residuals(model, **batch_arrays(7))
    x, y = images(PUBLIC, seed=100)
    anchors = oracle_groups(model, {"x": x, "y": y}, GROUPS)
    for figures, gradient, anchor in zip(
        found.values(), oracle_groups(model, batch_of(7), GROUPS), anchors, strict=False
    ):
        rows = np.linalg.svd(anchor, full_matrices=False)[2][: figures.num_bases]
        residual = gradient - gradient @ rows.T @ rows
        error = np.linalg.norm(residual.sum(0)) / np.linalg.norm(gradient.sum(0))
        assert figures.projection_error == pytest.approx(error, abs=2e-3)
        if error > 0.1:
            assert figures.residual_stable_rank == pytest.approx(stable_rank(residual), rel=1e-2)
            for share, part, clip in (
                (figures.clipped_embeddings, gradient - residual, CLIPPED["embedding_clip"]),
                (figures.clipped_residuals, residual, CLIPPED["residual_clip"]),
            ):
                assert share == pytest.approx(np.mean(np.linalg.norm(part, axis=1) > clip))


def test_nothing_is_missed_of_the_public_examples_themselves():
    model = compiled(gep_optimizer(num_bases=3 * PUBLIC, **CLIPPED))
    x, y = images(PUBLIC, seed=100)
    found = diagnostics.anchor_residuals(model, x, y)
    assert found["all"].projection_error < 1e-2


def test_random_directions_miss_the_share_that_their_number_leaves():
    """`E|r|^2 / |g|^2 = 1 - k / p` for any gradient; far more than the anchors' directions miss."""
    model = compiled(gep_optimizer(num_bases=40, **CLIPPED))
    x, y = images(PUBLIC, seed=100)
    found, random = (
        list(diagnostics.anchor_residuals(model, x, y, random_basis=choice).values())[1]
        for choice in (False, True)
    )
    assert random.num_bases == found.num_bases
    expected = np.sqrt(1 - random.num_bases / (20 * 108 + 20))
    assert random.projection_error == pytest.approx(expected, abs=0.01)
    assert found.projection_error < 0.5 * random.projection_error


def test_duplicated_public_examples_have_one_direction():
    x, y = images(1, seed=100)
    public = {"public_data": np.repeat(x, 5, 0), "public_labels": np.repeat(y, 5)}
    model = compiled(gep_optimizer(num_bases=9, **public, **CLIPPED))
    found = diagnostics.anchor_residuals(model, **batch_arrays(4))
    assert [figures.num_bases for figures in found.values()] == [1, 1, 1, 3]


def test_the_gradient_scale_applies_as_in_training():
    scale = {"hidden": 0.0625}
    plain, scaled = (
        diagnostics.anchor_residuals(
            compiled(gep_optimizer(**CLIPPED, **arguments)), **batch_arrays(5)
        )
        for arguments in ({}, {"gradient_scale": scale})
    )
    for one, other in list(zip(plain.values(), scaled.values(), strict=True))[:3]:
        assert one.projection_error == pytest.approx(other.projection_error, abs=1e-3)
    gradients = oracle_groups(gep_model(), batch_of(5), GROUPS)
    gradients[1] = 0.0625 * gradients[1]
    expected = stable_rank(np.hstack(gradients))
    assert scaled["all"].gradient_stable_rank == pytest.approx(expected, rel=1e-3)


def run(callbacks):
    model = compiled(gep_optimizer(seed=3, public_labels="random", **NOISY))
    data = images(24)
    batches = tfdp.PoissonSampler(*data, batch_size=8, steps=3, seed=1)
    model.fit(batches, epochs=1, verbose=0, callbacks=callbacks)
    return [np.array(v) for v in model.trainable_variables], tfdp.privacy_spent(model, 1e-3)


def test_a_monitor_records_over_training_and_changes_nothing():
    monitor = diagnostics.AnchorMonitor(*images(6, seed=9), every=2)
    (without, spent), (watched, spent_watched) = run([]), run([monitor])
    for one, other in zip(without, watched, strict=True):
        np.testing.assert_array_equal(one, other)
    assert spent == spent_watched
    assert monitor.history.steps == [0, 2]
    assert all(0.0 < found["all"].projection_error < 1.0 for found in monitor.history.residuals)


def test_other_optimizers_and_missing_public_data_are_refused():
    model = tfdp.make_private(gep_model())
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0)
    model.compile(optimizer, loss=loss)
    with pytest.raises(ValueError, match="(?s)Expected a model compiled with a GEPOptimizer.*Rec"):
        diagnostics.anchor_residuals(model, **batch_arrays(3))
    model.compile(tfdp.GEPOptimizer("sgd", num_classes=CLASSES, noise_multiplier=1.0), loss=loss)
    with pytest.raises(ValueError, match="Expected public data"):
        diagnostics.anchor_residuals(model, **batch_arrays(3))


def recorded(name="all", errors=(0.5, 0.25)):
    residuals = [diagnostics.AnchorResidual(3, error, 2.0, 9.0, 0.5, 0.5) for error in errors]
    return diagnostics.AnchorHistory([0, 5], [{name: residual} for residual in residuals])


def test_the_plot_has_a_line_for_each_error_and_two_for_each_rank(tmp_path):
    histories = {"public": recorded(), "random": recorded(errors=(0.9, 0.8))}
    figure = diagnostics.plot_anchors(histories)
    errors, ranks = figure.axes
    assert (len(errors.lines), len(ranks.lines)) == (2, 4)
    np.testing.assert_array_equal(errors.lines[1].get_xdata(), [0, 5])
    np.testing.assert_array_equal(errors.lines[1].get_ydata(), [0.9, 0.8])
    labels = [line.get_label() for line in ranks.lines]
    assert labels == [f"{n}, {w}" for n in histories for w in ("gradients", "residuals")]
    figure.savefig(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_what_cannot_be_drawn_is_refused():
    for history, group in [(diagnostics.AnchorHistory(), "all"), (recorded(), "dense/kernel")]:
        with pytest.raises(ValueError, match="(?s)Expected histories.*Received"):
            diagnostics.plot_anchors({"public": history}, group)
