"""What a trainer releases is applied by this trainer, once or more for each of its releases."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import Sampling

STEPS = 4


class Loop:
    """A model, its trainer and its forward."""

    def __init__(self, private, sampler, **options):
        self.model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
        private(self.model, "sgd", noise_multiplier=1.0, **options)
        self.trainer = tfdp.PrivateTrainer(self.model, sampler, steps=STEPS)

    def forward(self, batch):
        losses = keras.losses.sparse_categorical_crossentropy
        return losses(batch["y"], self.model(batch["x"]), from_logits=True), ()

    def gradients(self, batch):
        return self.trainer.gradients(self.forward, batch)


@pytest.fixture
def sampler(data):
    return tfdp.PoissonSampler(*data(), batch_size=6, steps=STEPS, pad_to_multiple=24)


@pytest.fixture
def two(private, sampler):
    return Loop(private, sampler), Loop(private, sampler)


def test_gradients_of_another_trainer_are_refused_and_change_nothing(two, sampler):
    first, second = two
    batches, before = iter(sampler), second.model.get_weights()
    gradients = first.gradients(next(batches))
    second.gradients(next(batches))
    with pytest.raises(RuntimeError, match="ledger of this model"):
        second.trainer.apply(gradients)
    np.testing.assert_array_equal(second.model.get_weights()[0], before[0])
    first.trainer.apply(gradients)


def test_a_trainer_that_has_released_nothing_since_its_update_applies_nothing(two, sampler):
    first, second = two
    batches = iter(sampler)
    gradients = [2.0 * gradient for gradient in first.gradients(next(batches))]
    with pytest.raises(RuntimeError, match="released since its last update"):
        second.trainer.apply(gradients)
    first.trainer.apply(gradients)
    with pytest.raises(RuntimeError, match="released since its last update"):
        first.trainer.apply(gradients)


def test_gradients_of_another_trainer_are_refused_in_a_graph(two, sampler):
    first, second = two
    step = tf.function(lambda batch: second.trainer.apply(first.gradients(batch)))
    with pytest.raises(RuntimeError, match="ledger of this model"):
        step(next(iter(sampler.as_dataset())))


@pytest.mark.parametrize("compiled", [False, True])
def test_a_graph_applies_nothing_that_was_not_released_in_or_before_it(two, sampler, compiled):
    first, second = two
    update = tf.function(second.trainer.apply, jit_compile=compiled)
    before = second.model.get_weights()[0]
    gradients = first.gradients(next(iter(sampler)))
    if compiled:  # XLA drops what would fail
        update(gradients)
        assert np.isnan(second.model.get_weights()[0]).all()
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match="released since its last update"):
        update(gradients)
    np.testing.assert_array_equal(second.model.get_weights()[0], before)


def test_gradients_that_were_added_up_or_averaged_by_hand_are_applied(two, sampler):
    first, _ = two
    batches = iter(sampler)
    sums = first.gradients(next(batches))
    sums = [a + b for a, b in zip(sums, first.gradients(next(batches)), strict=True)]
    first.trainer.apply(sums)
    assert int(first.model.optimizer.iterations) == 1
    assert first.model.optimizer.ledger.num_steps == 2


@pytest.mark.parametrize("in_graph", [False, True])
def test_another_view_of_a_batch_of_a_pass_is_refused(private, data, in_graph):
    """Three views of three batches, the pass left there: 19.6 was reported instead of 44.6."""
    x, y = data()
    loop = Loop(private, Sampling.shuffle(6, 4, 24))
    presence = tf.ones([6])
    batches = [
        {"x": tf.constant(x[at : at + 6]), "y": tf.constant(y[at : at + 6]), "presence": presence}
        for at in range(0, 24, 6)
    ]

    def release(batch, x):
        loop.trainer.apply(loop.gradients({**batch, "x": x}))

    release = tf.function(release) if in_graph else release
    error = tf.errors.InvalidArgumentError if in_graph else RuntimeError
    for batch in loop.trainer.one_pass(batches):
        release(batch, 1.1 * batch["x"])
        with pytest.raises(error, match="another view of a batch"):
            release(batch, 1.2 * batch["x"])
    with pytest.raises(error, match="one outside of a pass"):
        release(batch, 1.3 * batch["x"])
    assert loop.model.optimizer.ledger.num_steps == 4


def test_a_graph_takes_no_step_that_the_ledgers_file_does_not_hold(data, tmp_path, sampler):
    """It stayed empty where a loop in a graph did not call `check_budget`."""

    def private(model, optimizer, **options):
        tfdp.make_private(model, ledger_path=tmp_path / "ledger.jsonl")
        model.compile(tfdp.DPSGDOptimizer(optimizer, l2_norm_clip=1.0, **options))

    loop = Loop(private, sampler)
    step = tf.function(lambda batch: loop.trainer.apply(loop.gradients(batch)))
    batches = iter(sampler.as_dataset())
    with pytest.raises(tf.errors.InvalidArgumentError, match="trainer.check_budget"):
        step(next(batches))
    loop.trainer.check_budget(2)
    for _ in range(2):
        step(next(batches))
    with pytest.raises(tf.errors.InvalidArgumentError, match="trainer.check_budget"):
        step(next(batches))
    assert loop.model.optimizer.ledger.num_steps == 2
    assert '"steps": 2' in (tmp_path / "ledger.jsonl").read_text()
