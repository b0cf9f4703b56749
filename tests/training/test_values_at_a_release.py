"""The values at which a release was made are looked at, not only those that an update leaves.

Guarantee (`PrivateTrainer`): weights that are neither what `apply` has left nor were looked at
before are taken for changed by others, at a release as at an update.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.spending import SPENDING

DELTA, STEPS = 1e-3, 4


def forward_of(model):
    """What a trainer of the model differentiates."""

    def forward(batch):
        logits = model(batch["x"], training=True)
        entropy = keras.losses.sparse_categorical_crossentropy
        return entropy(batch["y"], logits, from_logits=True), ()

    return forward


@pytest.fixture
def loop(private, small_model, data):
    """A model, its trainer, what it differentiates and its draws."""

    class Loop:
        def __init__(self):
            self.model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
            sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=STEPS)
            self.trainer = tfdp.PrivateTrainer(self.model, sampler)
            self.draws = sampler.as_dataset()
            self.forward = forward_of(self.model)

        def gradients(self, batch):
            return self.trainer.gradients(self.forward, batch)

        @property
        def variables(self):
            return self.model.trainable_variables

        def is_known(self):
            return "unknown" not in tfdp.privacy_statement(self.model, DELTA)

    return Loop()


def private_gradient(loop, data):
    """Of all rows, without noise: what nobody may take a step along."""
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(loop.forward(dict(zip("xy", data(), strict=True)))[0])
    return tape.gradient(loss, loop.variables)


def put_back_after_the_release(loop, batch, data):
    """Sharpness-aware minimisation with the ordinary gradient of the private rows."""
    kept = [tf.identity(variable) for variable in loop.variables]
    for variable, gradient in zip(loop.variables, private_gradient(loop, data), strict=True):
        variable.assign_add(0.5 * gradient)
    released = loop.gradients(batch)
    for variable, value in zip(loop.variables, kept, strict=True):
        variable.assign(value)
    loop.trainer.apply(released)


def updated_by_others_alone(loop, batch, data):
    """Nobody calls `apply`, so that what else changes weights looks like its updates."""
    for variable, released, gradient in zip(
        loop.variables, loop.gradients(batch), private_gradient(loop, data), strict=True
    ):
        variable.assign_sub(0.1 * (released + gradient))


CHANGED = (put_back_after_the_release, updated_by_others_alone)


@pytest.mark.parametrize("in_a_graph", [False, True])
@pytest.mark.parametrize("step", CHANGED)
def test_changes_that_only_a_release_has_met_leave_the_spend_unknown(step, in_a_graph, loop, data):
    def take(batch):
        step(loop, batch, data)

    take = tf.function(take) if in_a_graph else take
    for batch in loop.draws:
        take(batch)
    assert not loop.is_known()


@pytest.mark.parametrize("in_a_graph", [False, True])
def test_a_change_before_the_last_release_is_enough(in_a_graph, loop, data):
    gradients, apply = loop.gradients, loop.trainer.apply
    if in_a_graph:
        gradients, apply = tf.function(gradients), tf.function(apply)
    *before, last = loop.draws
    for batch in before:
        apply(gradients(batch))
    kept = loop.model.get_weights()
    loop.model.set_weights([value + data()[0].mean() for value in kept])
    released = gradients(last)
    loop.model.set_weights(kept)
    apply(released)
    assert not loop.is_known()


def test_a_change_before_the_first_release_of_a_graph_is_noticed(loop, data):
    """Made after the release was traced and before the update was."""
    gradients, apply = tf.function(loop.gradients), tf.function(loop.trainer.apply)
    first, second, *_ = loop.draws
    loop.trainer.apply(loop.gradients(first))
    assert loop.is_known()
    gradients.get_concrete_function(second)
    loop.model.set_weights([value + data()[0].mean() for value in loop.model.get_weights()])
    apply(gradients(second))
    assert not loop.is_known()


@pytest.mark.parametrize("in_a_graph", [False, True])
def test_releases_that_are_added_up_for_one_update_are_known(in_a_graph, loop):
    def two(one, other):
        first, second = loop.gradients(one), loop.gradients(other)
        loop.trainer.apply([(a + b) / 2.0 for a, b in zip(first, second, strict=True)])

    two = tf.function(two) if in_a_graph else two
    draws = list(loop.draws)
    for one, other in zip(draws[::2], draws[1::2], strict=True):
        two(one, other)
    assert loop.is_known()


@pytest.mark.parametrize("in_a_graph", [False, True])
def test_a_step_along_what_was_released_is_known_where_it_is_stated(in_a_graph, loop):
    """Sharpness-aware minimisation with two releases: the way that docs/threat_model.md names."""
    gradients, apply = loop.gradients, loop.trainer.apply
    if in_a_graph:
        gradients, apply = tf.function(gradients), tf.function(apply)
    draws = list(loop.draws)
    for one, other in zip(draws[::2], draws[1::2], strict=True):
        kept, along = loop.model.get_weights(), gradients(one)
        with tfdp.post_processing(loop.model):
            for variable, gradient in zip(loop.variables, along, strict=True):
                variable.assign_add(0.1 * gradient)
        released = gradients(other)
        with tfdp.post_processing(loop.model):
            loop.model.set_weights(kept)
        apply(released)
    assert loop.is_known()
    assert all(np.isfinite(value).all() for value in loop.model.get_weights())


def average(student, teacher):
    for mine, others in zip(teacher.weights, student.weights, strict=True):
        mine.assign(0.9 * mine + 0.1 * others)


def test_blocks_of_a_loop_leave_one_record(private, small_model, data):
    """Or each look at a mean teacher would take longer than the one before."""
    student, teacher = private(small_model(), noise_multiplier=2.0), small_model()
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=6)
    trainer = tfdp.PrivateTrainer(student, sampler)

    forward = forward_of(student)
    counts = []
    for batch in sampler:
        trainer.apply(trainer.gradients(forward, batch))
        with tfdp.post_processing(teacher, student):
            average(student, teacher)
        counts.append(len(SPENDING.records(teacher.weights)))
        assert tfdp.privacy_spent(teacher, 1e-3) == tfdp.privacy_spent(student, 1e-3)
    assert counts == [1] * 6


def test_a_mean_teacher_inside_of_the_model_trains_in_a_graph(private, small_model, data):
    """Its weights come to have a record after the graph was first traced."""
    student, teacher = small_model(), small_model()
    teacher.trainable = False

    class Both(keras.Model):
        def __init__(self):
            super().__init__()
            self.student, self.teacher = student, teacher

        def call(self, x):
            return self.student(x) + 0.1 * keras.ops.stop_gradient(self.teacher(x))

    model = Both()
    model(data()[0])
    private(model, noise_multiplier=2.0)
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=8, pad_to_multiple=1)
    trainer = tfdp.PrivateTrainer(model, sampler)

    forward = forward_of(model)
    step = tf.function(lambda batch: trainer.apply(trainer.gradients(forward, batch)))
    for batch in sampler:
        step(batch)
        with tfdp.post_processing(model):
            average(student, teacher)
    assert "unknown" not in tfdp.privacy_statement(model, 1e-3)
    assert len(SPENDING.records(teacher.weights)) == 1


def test_who_has_ended_does_not_pay_for_what_a_teacher_learns_later(private, small_model, data):
    first, second, student, other = (small_model() for _ in range(4))
    for model in (first, second):
        private(model, noise_multiplier=2.0)
        model.fit(*data(), batch_size=8, verbose=0)
    with tfdp.post_processing(student, first):
        average(first, student)

    class Loss(keras.losses.Loss):
        def call(self, y, logits):
            return keras.ops.mean(keras.ops.square(logits - student(y)), axis=-1)

    x = data()[0]
    private(other, noise_multiplier=2.0, loss=Loss())
    other.fit(x, x, batch_size=8, verbose=0)
    ended = tfdp.privacy_spent(other, 1e-3)
    assert ended > tfdp.privacy_spent(student, 1e-3)
    with tfdp.post_processing(student, second):
        average(second, student)
    assert tfdp.privacy_spent(other, 1e-3) == ended
    assert tfdp.privacy_spent(student, 1e-3) > tfdp.privacy_spent(second, 1e-3)
    other.fit(x, x, batch_size=8, verbose=0)
    assert tfdp.privacy_spent(other, 1e-3) > tfdp.privacy_spent(student, 1e-3)
