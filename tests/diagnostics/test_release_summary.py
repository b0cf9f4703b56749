"""Released coordinates against hand counts, noise energies against the lift itself."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp import diagnostics
from tf_lowrank_dp.algorithms import Algorithm
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.optimizers import DPOptimizer
from tf_lowrank_dp.release.space import ReleaseSpace

NOISE = {"l2_norm_clip": 3.0, "noise_multiplier": 0.5}
REST = 30 + 60 + 2  # bias, kernel and bias of the output layer


def build():
    keras.utils.set_random_seed(0)
    layers = [keras.Input((20,)), keras.layers.Dense(30, name="a"), keras.layers.Dense(2, name="b")]
    return keras.Sequential(layers)


# Released of the kernel (20, 30), and the energy of the lifted noise where a formula gives it.
CASES = [
    (tfdp.DPSGDOptimizer, {}, 600, 600),
    (tfdp.DPSGDOptimizer, {"clipping": "per_layer"}, 600, 600),
    (tfdp.RGPOptimizer, {"rank": 2}, 2 * 50, 2 * (50 - 2)),
    (tfdp.RGPOptimizer, {"rank": 2, "carriers_from": "random"}, 2 * 50, 2 * (50 - 2)),
    (tfdp.RGPOptimizer, {"rank": 2, "carriers": "left"}, 2 * 20, 2 * 20),
    (tfdp.RGPOptimizer, {"rank": 2, "carriers": "right"}, 2 * 30, 2 * 30),
    (tfdp.RGPOptimizer, {"rank": 8, "clipping": "per_layer"}, 600, 600),  # saves too little
    (tfdp.RGPOptimizer, {"rank": 99, "include": ["a/kernel"]}, 20 * 50, 20 * 30),
    (tfdp.LSGOptimizer, {"rank": 2, "sparsity": 0.5}, 2 * (10 + 15), None),
    (tfdp.LSGOptimizer, {"rank": 2, "sparsity": 0.25, "masks_from": "random"}, 2 * (15 + 23), None),
    (tfdp.LSGOptimizer, {"rank": 2, "sparsity": 0.5, "carriers": "left"}, 2 * 10, 2 * 10),
    (tfdp.LSGOptimizer, {"rank": 2, "sparsity": 0.0}, 2 * 50, 2 * (50 - 2)),
    (tfdp.LSGOptimizer, {"rank": 2, "sparsity_start_step": 1}, 2 * 50, 2 * (50 - 2)),
    (tfdp.SparseDPSGDOptimizer, {"sparsity": 0.9}, 60, 60),
    (tfdp.SparseDPSGDOptimizer, {"sparsity": 0.5, "unit": "neuron"}, 15 * 20, 15 * 20),
]


def energy_of_the_lift(model, optimizer):
    """`sum |lift(e)|^2` over all unit vectors `e` of the release: exact for a linear lift."""
    parameters = describe_parameters(model)
    space = optimizer.release_space(
        optimizer.release_context(
            parameters, NoiseGenerator(0).normal, state=optimizer.algorithm_state.copy()
        )
    )
    subspace = space.refresh()
    sizes = [[int(np.prod(shape)) for shape in block] for block in space.shapes]
    total = sum(size for block in sizes for size in block)
    energy = 0.0
    for unit in np.eye(total, dtype="float32"):
        parts = iter(np.split(unit, np.cumsum([n for block in sizes for n in block])[:-1]))
        released = [[tf.reshape(next(parts), shape) for shape in block] for block in space.shapes]
        energy += sum(float(tf.reduce_sum(g**2)) for g in space.lift(released, subspace))
    return energy


@pytest.mark.parametrize("cls, arguments, kernel, lifted", CASES)
def test_counts_and_energies(cls, arguments, kernel, lifted):
    model, optimizer = build(), cls("sgd", **arguments, **NOISE)
    summary = diagnostics.release_summary(model, optimizer)
    assert summary.mechanism == optimizer.algorithm.name and not summary.is_estimate
    assert (summary.parameters, summary.released) == (692, kernel + REST)
    assert summary.noise_variance == 2.25
    assert summary.release_energy == 2.25 * (kernel + REST)
    assert summary.lifted == pytest.approx(energy_of_the_lift(model, optimizer), rel=1e-4)
    assert summary.lifted_energy == pytest.approx(2.25 * summary.lifted)
    if lifted is not None:
        assert summary.lifted == pytest.approx(lifted + REST, rel=1e-4)


@pytest.mark.parametrize("cls", [tfdp.DPSGDOptimizer, tfdp.LSGOptimizer])
def test_gradient_scale_multiplies_the_lifted_noise_only(cls):
    model = build()
    plain, scaled = cls("sgd", **NOISE), cls("sgd", gradient_scale={"b/": 0.5}, **NOISE)
    before, after = (diagnostics.release_summary(model, o) for o in (plain, scaled))
    assert after.released == before.released
    assert after.lifted == pytest.approx(before.lifted + 3 * 62)
    assert after.lifted == pytest.approx(energy_of_the_lift(model, scaled), rel=1e-4)


def test_power_sgd_pays_for_all_and_keeps_less():
    """More than what a random subspace holds of the noise, less than its two leading directions."""
    optimizer = tfdp.DPPowerSGDOptimizer("sgd", rank=2, **NOISE)
    model = build()
    summaries = [diagnostics.release_summary(model, optimizer, seed=seed) for seed in range(20)]
    assert all(summary.released == 692 and summary.is_estimate for summary in summaries)
    kept = np.mean([summary.lifted for summary in summaries]) - REST
    assert 2 * 30 < kept < 2 * (np.sqrt(20) + np.sqrt(30)) ** 2
    assert "~" in str(summaries[0])


def gep(**arguments):
    public = {"public_data": np.ones((50, 20), "float32"), "public_labels": np.ones((50, 2))}
    clips = {"embedding_clip": 4.0, "residual_clip": 3.0, "noise_multiplier": 0.5, "num_bases": 12}
    return tfdp.GEPOptimizer("sgd", **{**public, **clips, **arguments})


def test_gep_pays_for_both_blocks_with_the_noise_of_each():
    """Deviations `z sqrt(2) S1` on 12 coordinates and `z sqrt(2) S2` on 692, before and after."""
    summary = diagnostics.release_summary(build(), gep())
    expected = 0.25 * (2 * 16 * 12 + 2 * 9 * 692)
    assert (summary.released, summary.is_estimate) == (12 + 692, False)
    assert summary.release_energy == pytest.approx(expected)
    assert summary.lifted_energy == pytest.approx(expected)


def test_b_gep_pays_for_its_embedding_only():
    summary = diagnostics.release_summary(build(), gep(residual=False))
    assert summary.mechanism == "B-GEP" and summary.released == 12
    assert summary.release_energy == summary.lifted_energy == pytest.approx(0.25 * 16 * 12)


def test_the_scale_of_a_whole_group_multiplies_the_lifted_noise_of_both_blocks():
    """The groups (630 and 62 weights) have 9 and 3 of the 12 directions."""
    summary = diagnostics.release_summary(build(), gep(gradient_scale={"b/": 0.5}))
    expected = 0.25 * (2 * 16 * (9 + 3 * 4) + 2 * 9 * (630 + 62 * 4))
    assert summary.lifted_energy == pytest.approx(expected) and not summary.is_estimate
    mixed = diagnostics.release_summary(build(), gep(gradient_scale={"bias": 0.5}))
    assert mixed.is_estimate


def test_gep_without_clips_and_noise_has_no_noise():
    free = {"embedding_clip": float("inf"), "residual_clip": float("inf"), "noise_multiplier": 0.0}
    summary = diagnostics.release_summary(build(), gep(**free))
    assert summary.release_energy == summary.lifted_energy == 0.0


class Doubled(ReleaseSpace):
    def __init__(self, parameters):
        self.shapes = [[p.shape for p in parameters]]

    def project(self, gradients, subspace):
        return [list(gradients)]

    def lift(self, released, subspace):
        return [2.0 * tensor for tensor in released[0]]


@dataclasses.dataclass(frozen=True)
class Doubling(Algorithm):
    name = "doubling"

    def release_space(self, context):
        return Doubled(context.parameters)


def test_other_spaces_are_tried_on_one_draw():
    summary = diagnostics.release_summary(build(), DPOptimizer("sgd", Doubling(), **NOISE))
    assert summary.released == 692 and summary.is_estimate
    assert summary.lifted == pytest.approx(4 * 692, rel=0.25)


def test_looking_changes_nothing():
    model = build()
    tfdp.make_private(model)
    optimizer = tfdp.RGPOptimizer("sgd", rank=2, **NOISE)
    model.compile(optimizer, loss="mse")
    weights = [np.array(v) for v in model.trainable_variables]
    assert diagnostics.release_summary(model) == diagnostics.release_summary(model, optimizer)
    assert not optimizer.initial_weights
    assert tfdp.privacy_spent(model, 1e-5) == 0.0
    for before, variable in zip(weights, model.trainable_variables, strict=True):
        np.testing.assert_array_equal(before, variable)


def test_noise_is_known_once_it_is_calibrated():
    model = build()
    tfdp.make_private(model)
    optimizer = tfdp.LSGOptimizer(
        "sgd", rank=2, l2_norm_clip=2.0, epsilon=3.0, delta=1e-3, planned_steps=2
    )
    model.compile(optimizer, loss="mse", jit_compile=False)
    summary = diagnostics.release_summary(model)
    assert summary.release_energy is None and summary.lifted_energy is None
    assert "over (noise_multiplier * l2_norm_clip)^2" in str(summary)
    x, y = np.ones((8, 20), "float32"), np.ones((8, 2), "float32")
    model.fit(x, y, batch_size=4, epochs=1, verbose=0)
    known = optimizer.initial_weights.copy()
    summary = diagnostics.release_summary(model)
    assert summary.noise_variance == pytest.approx(
        (2.0 * optimizer.calibrated_noise_multiplier) ** 2
    )
    assert optimizer.initial_weights == known


def test_no_noise_has_no_energy_even_without_a_clip():
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=float("inf"), noise_multiplier=0.0)
    summary = diagnostics.release_summary(build(), optimizer)
    assert summary.release_energy == summary.lifted_energy == 0.0


def test_the_table_has_one_line_for_each_optimizer_in_one_unit():
    budget = {"l2_norm_clip": 3.0, "epsilon": 3.0, "delta": 1e-5}
    optimizers = {
        "plain": tfdp.DPSGDOptimizer("sgd", **NOISE),
        "sparse": tfdp.SparseDPSGDOptimizer("sgd", sparsity=0.9, **NOISE),
    }
    lines = diagnostics.compare_releases(build(), optimizers).splitlines()
    assert lines[1].split() == ["plain", "692", "692", "1,557", "1,557"]
    assert lines[2].split() == ["sparse", "692", "152", "342", "342"]
    optimizers["budget"] = tfdp.DPSGDOptimizer("sgd", **budget)
    lines = diagnostics.compare_releases(build(), optimizers).splitlines()
    assert lines[1].split() == ["plain", "692", "692", "692", "692"]
    assert len(lines) == 5 and "over (noise_multiplier * l2_norm_clip)^2" in lines[-1]


def test_models_that_cannot_be_summarised_are_refused():
    with pytest.raises(tfdp.UnsupportedModelError, match="built"):
        unbuilt = keras.Sequential([keras.layers.Dense(2)])
        diagnostics.release_summary(unbuilt, tfdp.DPSGDOptimizer("sgd", **NOISE))
    model = build()
    model.compile("sgd")
    with pytest.raises(tfdp.NotPrivateError):
        diagnostics.release_summary(model)
