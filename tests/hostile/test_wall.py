"""Each number that crosses the wall has noise of the stated deviation, once, and no other has."""

import dataclasses

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tests.hostile.configurations import CONFIGURATIONS
from tests.hostile.harness import Harness
from tests.hostile.models import TOKENS
from tests.hostile.records import RECORDS, make_batch
from tf_lowrank_dp.training.judged_graphs import JudgedGraphs
from tf_lowrank_dp.training.running_fit import executing
from tf_lowrank_dp.training.train_step import train_step

MULTIPLIER, STEPS = 1.7, 40
NAMES = (
    "dense dpsgd per layer reweight",
    "dense sparse neuron per layer",
    "dense gep in one group",
    "dense b-gep",
    "sequence power sgd per layer",
    "sequence rgp weights",
    "sequence lsg scaled bfloat",
    "recurrent dpsgd",
)


def ordinary_batch(harness):
    record = ("no padding" if harness.kind == TOKENS else "normal", "normal", 1.0, False)
    shapes = harness.x_shape, harness.y_shape
    return make_batch(harness.kind, [record] * RECORDS, 5, *shapes, harness.directions)


@pytest.fixture(params=NAMES, scope="module")
def harnesses(request):
    """Two runs that share weights, carriers and data, without and with noise."""
    configuration = dataclasses.replace(CONFIGURATIONS[request.param], inner="sgd")
    return Harness(configuration), Harness(configuration, MULTIPLIER)


def noise_of_steps(harnesses):
    """What was added to each block at each step, over its deviation: `(STEPS, numbers)` a block.

    The subspace is fixed, as counters are reset; the key of the noise is another one each time.
    """
    clean, noisy = harnesses
    batch, present = ordinary_batch(clean), np.ones(RECORDS)
    before, _, _ = clean.release(batch, present)
    assert all(np.linalg.norm(block) > 0.0 for block in before)
    steps = []
    for seed in range(STEPS):
        key = np.array([seed + 1000], np.uint64)
        noisy.run.engine.noise._key.assign(key)
        after, _, _ = noisy.release(batch, present)
        steps.append([a - b for a, b in zip(after, before, strict=True)])
    deviations = noisy.mechanism.deviations
    return [np.stack(s) / d for s, d in zip(zip(*steps, strict=True), deviations, strict=True)]


def test_everything_released_has_the_stated_noise_once_and_of_its_own(harnesses):
    blocks = noise_of_steps(harnesses)
    for block in blocks:
        assert np.all(block != 0.0)  # no number of any step is released as it is
        # Each number by itself over the steps: neither less nor twice the noise (p < 1e-9).
        squares = np.sum(block**2, axis=0)
        low, high = scipy.stats.chi2.ppf([1e-9, 1 - 1e-9], STEPS)
        assert np.all((squares > low) & (squares < high))
        # All numbers together: mean, variance and distribution.
        assert abs(np.mean(block)) <= 4 / np.sqrt(block.size)
        assert abs(np.var(block) - 1.0) <= 4 * np.sqrt(2 / block.size)
        assert scipy.stats.kstest(block.reshape(-1), "norm").pvalue > 1e-3
    together = np.concatenate(blocks, axis=1)
    # Numbers of one step, of any two blocks and variables, are uncorrelated: so are the steps.
    for rows in (together, together.T):
        products = rows @ rows.T / rows.shape[1]
        different = products[~np.eye(len(rows), dtype=bool)]
        assert np.max(np.abs(different)) <= 7 / np.sqrt(rows.shape[1])
        expected = 1 / rows.shape[1]
        assert abs(np.mean(different**2) / expected - 1) <= 0.1 + 8 / np.sqrt(different.size)


def test_consecutive_steps_have_other_noise(harnesses):
    clean, noisy = harnesses
    batch, absent = ordinary_batch(clean), np.zeros(RECORDS)
    first, _, _ = noisy.release(batch, absent)
    second, _, _ = noisy.release(batch, absent, reset=False)
    a, b = np.concatenate(first), np.concatenate(second)
    assert abs(np.corrcoef(a, b)[0, 1]) <= 4.5 / np.sqrt(len(a))
    assert not np.any(a == b)


def test_the_noise_does_not_depend_on_the_data(harnesses):
    clean, noisy = harnesses
    batch = ordinary_batch(clean)
    found = []
    for presence in (np.zeros(RECORDS), np.ones(RECORDS), np.eye(RECORDS)[0]):
        after, before = (h.release(batch, presence)[0] for h in (noisy, clean))
        found.append(np.concatenate([a - b for a, b in zip(after, before, strict=True)]))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-6 * noisy.mechanism.l2_norm_clip)


def test_weights_move_by_what_crossed_the_wall_and_by_nothing_else(harnesses):
    """Plain gradient descent: the update is the lift of what was released, over a constant."""
    _, noisy = harnesses
    model, batch = noisy.model, ordinary_batch(noisy)
    model.optimizer.learning_rate = 1.0
    run = noisy.run
    engine = run.engine
    _, _, lifted = noisy.release(batch, np.ones(RECORDS))
    noisy.reset()
    weights = [v.numpy() for v in model.trainable_variables]
    metrics = {id(v) for metric in model.metrics for v in metric.variables}
    others = [v for v in model.non_trainable_variables if id(v) not in metrics]
    assert not [v for v in others if "seed" not in v.path]
    run.judged = JudgedGraphs(model, run.loss, engine.gradient_method, RECORDS)
    run.judged.judge({key: tf.TensorSpec(value.shape, value.dtype) for key, value in batch.items()})
    units = run.judged.units
    run.engine = dataclasses.replace(engine, mechanism=noisy.mechanism, part_rows=units)
    try:
        tensors = {key: tf.constant(value) for key, value in batch.items()}
        with executing(run):
            train_step(model, {**tensors, "presence": tf.ones([RECORDS])})
        for v, before, step in zip(model.trainable_variables, weights, lifted, strict=True):
            np.testing.assert_allclose(v, before - step / RECORDS, rtol=1e-5, atol=1e-6)
    finally:
        run.engine = engine
        for v, before in zip(model.trainable_variables, weights, strict=True):
            v.assign(before)


def test_frozen_weights_get_no_noise():
    harness = Harness(CONFIGURATIONS["dense sparse weight"], MULTIPLIER)
    _, masks, lifted = harness.release(ordinary_batch(harness), np.ones(RECORDS))
    kernels = [tensor.numpy() for tensor in lifted if tensor.shape.rank == 2]
    frozen = 0
    for kernel in kernels:
        of_kernel = [mask for mask in masks if mask.shape == kernel.shape]
        for mask in of_kernel:
            assert set(np.unique(mask)) == {0.0, 1.0}
            np.testing.assert_array_equal(kernel != 0.0, mask == 1.0)
            frozen += np.sum(mask == 0.0)
    assert frozen > 50


@pytest.mark.parametrize("where", ["option", "TF_ENABLE_AUTO_MIXED_PRECISION",
                                   "TF_SET_ONEDNN_FPMATH_MODE"])  # fmt: skip
def test_products_in_fewer_bits_are_refused(where, monkeypatch):
    """Grappler's rewriting moved a hostile record's release to 1.005 clips."""
    options = {"auto_mixed_precision_onednn_bfloat16": where == "option"}
    if where != "option":
        monkeypatch.setenv(where, "BF16" if where.endswith("MODE") else "1")
    tf.config.optimizer.set_experimental_options(options)
    try:
        with pytest.raises(RuntimeError, match="fewer bits.*Switch it off"):
            Harness(CONFIGURATIONS["dense dpsgd"])
    finally:
        tf.config.optimizer.set_experimental_options(dict.fromkeys(options, False))
    monkeypatch.undo()
    Harness(CONFIGURATIONS["dense dpsgd"])
