"""Budgets: calibration, planned steps, and the step that is not taken."""

import gc
import math
import re

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.training.state import find_run, ledger_of
from tf_lowrank_dp.training.step_guards import BudgetGuard

DELTA = 1e-3
FAST = {"accountant": "rdp", "delta": DELTA}


def spent(model):
    return tfdp.privacy_spent(model, DELTA)


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_a_calibrated_fit_ends_within_its_budget_and_close_to_it(
    private, small_model, data, accountant
):
    model = private(small_model(), epsilon=3.0, delta=DELTA, accountant=accountant)
    model.fit(*data(), batch_size=6, epochs=2, verbose=0)
    assert 3.0 * 0.98 <= spent(model) <= 3.0
    stated = float(re.search(r"epsilon\D*([0-9.]+[0-9])", tfdp.privacy_statement(model)).group(1))
    assert stated <= 3.0


def test_the_noise_is_calibrated_for_the_rate_after_validation_split(private, small_model, data):
    model = private(small_model(), epsilon=3.0, **FAST)
    model.fit(*data(), batch_size=6, validation_split=0.5, verbose=0)
    expected = tfdp.calibrate_noise_multiplier(3.0, DELTA, 6, 12, steps=2, accountant="rdp")
    assert model.optimizer.calibrated_noise_multiplier == expected


def test_planned_steps_last_over_two_fits_and_not_longer(private, small_model, data, weights_of):
    model = private(small_model(), epsilon=3.0, planned_steps=8, **FAST)
    model.fit(*data(), batch_size=6, verbose=0)
    halfway = spent(model)
    model.fit(*data(), batch_size=6, verbose=0)
    assert halfway < spent(model) <= 3.0
    weights = weights_of(model)
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        model.fit(*data(), batch_size=6, verbose=0)
    for before, after in zip(weights, weights_of(model), strict=True):
        np.testing.assert_array_equal(before, after)
    assert spent(model) <= 3.0


@pytest.mark.parametrize("steps", [-1, 0, -5, 2.0])
@pytest.mark.parametrize("as_sampler", [False, True])
def test_a_number_of_steps_below_one_does_not_switch_the_budget_off(
    private, small_model, data, steps, as_sampler
):
    """30 steps had been taken where noise was calibrated for one: epsilon 3.9 instead of 1."""
    model = private(small_model(), epsilon=1.0, **FAST)
    rows, size = data(), {"batch_size": 6}
    if as_sampler:
        rows, size = [tfdp.PoissonSampler(*rows, batch_size=6, steps=20)], {}
    with pytest.raises(ValueError, match="`steps_per_epoch` to be an integer of at least 1"):
        model.fit(*rows, steps_per_epoch=steps, verbose=0, **size)
    assert spent(model) == 0.0


def test_small_integers_of_numpy_plan_as_many_steps_as_others(private, small_model, data):
    """100 steps in each of two epochs had been planned as -56."""
    model = private(small_model(), epsilon=1.0, **FAST)
    model.fit(*data(), batch_size=6, epochs=np.int8(2), steps_per_epoch=np.int8(100), verbose=0)
    assert int(model.optimizer.iterations) == 200
    assert spent(model) <= 1.0


def test_a_step_that_is_taken_is_looked_at_whatever_the_steps_of_an_epoch_were_said_to_be(
    private, small_model, data
):
    model = private(small_model(), epsilon=1.0, planned_steps=1, **FAST)
    guard = BudgetGuard(steps_per_epoch=-1, new_passes=False)
    guard.set_model(model)
    asked = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: guard.on_train_batch_begin(batch + 1)
    )
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        model.fit(*data(), batch_size=6, steps_per_epoch=1, callbacks=[asked], verbose=0)
    assert int(model.optimizer.iterations) == 1


def test_the_step_that_would_overspend_is_not_taken_and_both_numbers_are_told(
    private, small_model, data
):
    model = private(small_model(), epsilon=3.0, planned_steps=5, **FAST)
    seen = []
    watch = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: seen.append(np.array(model.layers[0].kernel))
    )
    with pytest.raises(tfdp.PrivacyBudgetExceededError) as error:
        model.fit(*data(), batch_size=6, epochs=2, verbose=0, callbacks=[watch])
    assert len(seen) == 5
    np.testing.assert_array_equal(model.layers[0].kernel, seen[-1])
    assert spent(model) <= 3.0
    message = str(error.value)
    would_be = float(re.search(r"epsilon would be ([0-9.]+[0-9])", message).group(1))
    assert "3.0" in message and would_be > 3.0


def test_a_recompiled_optimizer_pays_only_what_is_left(private, small_model, data):
    model = private(small_model(), noise_multiplier=2.0, **FAST)
    model.fit(*data(), batch_size=6, verbose=0)
    before = spent(model)
    private(model, epsilon=before + 1.0, **FAST)
    model.fit(*data(), batch_size=6, verbose=0)
    assert before < spent(model) <= before + 1.0


def test_a_budget_that_is_spent_already_is_refused_before_the_first_step(
    private, small_model, data, weights_of
):
    model = private(small_model(), noise_multiplier=1.0, **FAST)
    model.fit(*data(), batch_size=6, verbose=0)
    before, weights = spent(model), weights_of(model)
    private(model, epsilon=before / 2, **FAST)
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="already spent"):
        model.fit(*data(), batch_size=6, verbose=0)
    assert spent(model) == before
    for a, b in zip(weights, weights_of(model), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("compiled", [{}, {"run_eagerly": True}], ids=["graph", "eager"])
def test_the_noise_is_calibrated_for_what_the_loss_reads_of_a_teacher(
    private, small_model, data, compiled
):
    """Of 20 planned steps 5 were taken, as if the teacher had been free until then."""
    teacher = private(small_model(), noise_multiplier=1.0, **FAST)
    teacher.fit(*data(), batch_size=6, verbose=0)
    target = spent(teacher) + 1.0

    def loss(y_true, y_pred):
        return keras.losses.mean_squared_error(teacher.layers[1].bias, y_pred)

    model = private(small_model(), loss=loss, epsilon=target, **FAST)
    model.run_eagerly = bool(compiled)
    model.fit(*data(), batch_size=6, epochs=3, verbose=0)
    assert int(model.optimizer.iterations) == 12
    assert target - 0.02 < spent(model) <= target


def test_what_is_learnt_of_past_spending_between_two_fits_counts(
    private, small_model, data, tmp_path
):
    """Weights that were paid for elsewhere bring their cost along, also into a running budget."""
    other = private(small_model(), noise_multiplier=1.0, **FAST)
    other.fit(*data(), batch_size=6, epochs=3, verbose=0)
    other.save_weights(tmp_path / "other.weights.h5")
    model = private(small_model(), epsilon=spent(other) + 0.5, planned_steps=8, **FAST)
    model.fit(*data(), batch_size=6, verbose=0)
    model.load_weights(tmp_path / "other.weights.h5")
    before = spent(model)
    assert before >= spent(other)
    try:
        model.fit(*data(), batch_size=6, verbose=0)
    except tfdp.PrivacyBudgetExceededError:
        pass
    assert spent(model) <= max(before, spent(other) + 0.5)


def cross_entropy(wanted, logits):
    return keras.losses.sparse_categorical_crossentropy(wanted, logits, from_logits=True)


def step_of(trainer, model, loss=cross_entropy):
    """A step of a custom loop."""

    def forward(rows):
        return loss(rows["y"], model(rows["x"])), ()

    def step(batch):
        trainer.apply(trainer.gradients(forward, batch))

    return step


def asking(teacher, whether=lambda: True):
    """A loss that asks a teacher, if it does when it is traced."""

    def loss(wanted, logits):
        given = cross_entropy(wanted, logits)
        if not whether():
            return given
        return given + keras.ops.sum(teacher(keras.ops.ones([1, 5])) * logits, axis=-1)

    return loss


@pytest.mark.parametrize("steps_per_execution", [1, 3])
def test_a_teacher_that_goes_on_in_a_callback_before_a_step_counts_for_that_step(
    private, small_model, data, weights_of, steps_per_execution
):
    """Its run was on record already, and the student went past its target."""
    teacher, student = small_model(), small_model()
    private(teacher, noise_multiplier=1.0, delta=1e-3)
    teacher.fit(*data(), batch_size=6, steps_per_epoch=1, verbose=0)

    private(student, epsilon=4.0, delta=DELTA, loss=asking(teacher))
    student.optimizer.planned_steps = 12
    student.steps_per_execution = steps_per_execution
    before = []

    def train_the_teacher(batch, logs=None):
        if batch != steps_per_execution:  # the second execution
            return
        before.extend(weights_of(student))
        teacher.fit(*data(), batch_size=6, epochs=20, verbose=0)

    callback = keras.callbacks.LambdaCallback(on_train_batch_begin=train_the_teacher)
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="Received: step"):
        student.fit(*data(), batch_size=6, callbacks=[callback], verbose=0)
    for one, other in zip(before, weights_of(student), strict=True):
        np.testing.assert_array_equal(one, other)


def pulled_to(teacher, by):
    """A student whose updates, and nothing else, read a weight of a teacher."""
    goal = teacher.layers[0].kernel

    class Pull(keras.regularizers.Regularizer):
        def __call__(self, value):
            return keras.ops.sum((value - goal) ** 2)

    class Near(keras.constraints.Constraint):
        def __call__(self, value):
            return goal + keras.ops.clip(value - goal, -1.0, 1.0)

    own = {"kernel_regularizer": Pull()} if by == "a regularizer" else {"kernel_constraint": Near()}
    hidden = keras.layers.Dense(4, activation="tanh", **own)
    return keras.Sequential([keras.Input((5,)), hidden, keras.layers.Dense(3)])


@pytest.mark.parametrize("by", ["a regularizer", "a constraint"])
@pytest.mark.parametrize("way", ["fit", "an eager loop", "a graph", "PrivacyBudget"])
def test_what_an_update_reads_of_a_teacher_counts_for_the_first_step(
    private, small_model, data, weights_of, tmp_path, by, way
):
    """It was found while that was traced: all of a `fit` of one execution went past its target."""
    teacher = private(small_model(), noise_multiplier=0.5, delta=1e-3)
    teacher.fit(*data(), batch_size=6, epochs=2, verbose=0)
    student = pulled_to(teacher, by)
    goal = {"noise_multiplier": 9.0} if way == "PrivacyBudget" else {"epsilon": 4.0}
    tfdp.make_private(student, ledger_path=tmp_path / "ledger.jsonl")
    private(student, **goal, delta=1e-3)
    student.steps_per_execution = 4
    before = weights_of(student)
    refused = pytest.raises(Exception, match="(?s)epsilon.*Received")
    if way in ("fit", "PrivacyBudget"):
        callbacks = [tfdp.PrivacyBudget(2.0)] if way == "PrivacyBudget" else []
        with refused as error:
            student.fit(*data(), batch_size=6, callbacks=callbacks, verbose=0)
        assert error.type is tfdp.PrivacyBudgetExceededError
    else:
        sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=4, pad_to_multiple=24)
        trainer = tfdp.PrivateTrainer(student, sampler)
        step = step_of(trainer, student)
        trainer.check_budget()
        with refused:
            (tf.function(step) if way == "a graph" else step)(next(iter(sampler.as_dataset())))
    for one, other in zip(before, weights_of(student), strict=True):
        np.testing.assert_array_equal(one, other)
    assert find_run(student).steps == (way == "an eager loop")  # whose release was made before


@pytest.mark.parametrize("way", ["fit", "a graph", "an eager loop"])
def test_a_regularizer_may_make_what_it_pulls_to_when_it_is_first_asked(
    private, small_model, data, way
):
    class Anchor(keras.regularizers.Regularizer):
        value = None

        def __call__(self, value):
            if self.value is None:
                self.value = keras.Variable(value * 1.0, trainable=False)
            return keras.ops.sum((value - self.value) ** 2)

    model = small_model()
    model.layers[0].kernel.regularizer = Anchor()
    private(model, noise_multiplier=2.0, delta=1e-3)
    if way == "fit":
        model.fit(*data(), batch_size=6, verbose=0)
        return
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=2, pad_to_multiple=24)
    trainer = tfdp.PrivateTrainer(model, sampler)
    step = step_of(trainer, model)
    step = tf.function(step) if way == "a graph" else step
    for batch in sampler.as_dataset():
        step(batch)
    assert find_run(model).steps == 2


class Squares(keras.regularizers.Regularizer):
    def __call__(self, value):
        return keras.ops.sum(value**2)


class Counting(keras.optimizers.SGD):
    """Makes a variable, which Keras does not know, when it is first asked."""

    number = None

    def update_step(self, gradient, variable, learning_rate):
        if self.number is None:
            with tf.init_scope():
                self.number = tf.Variable(0.0)
        self.number.assign_add(1.0)
        super().update_step(gradient / self.number, variable, learning_rate)


@pytest.mark.parametrize("by", ["a regularizer", "an optimizer"])
def test_an_update_by_other_code_is_no_change_by_others_where_fit_runs_eagerly(
    private, small_model, data, by
):
    """Weights were looked at between the release and the update: "prior spend unknown"."""
    model = small_model()
    if by == "a regularizer":
        model.layers[0].kernel.regularizer = Squares()
    inner = Counting(0.1) if by == "an optimizer" else "sgd"
    private(model, inner, noise_multiplier=2.0, delta=1e-3)
    model.run_eagerly = True
    for _ in range(2):
        model.fit(*data(), batch_size=6, verbose=0)
    assert not ledger_of(model).prior_spend_unknown


class Proximal(keras.optimizers.SGD):
    """Pulls weights to others of their shapes."""

    goals = ()

    def update_step(self, gradient, variable, learning_rate):
        for goal in self.goals:
            if goal.shape == variable.shape:
                gradient = gradient + 10.0 * (variable - goal)
        super().update_step(gradient, variable, learning_rate)


@pytest.mark.parametrize("way", ["fit", "an eager loop"])
def test_a_teacher_that_was_trained_anew_and_is_gone_counts_for_the_next_step(
    private, small_model, data, weights_of, way
):
    """Its value lives in a graph; only what the run had found knew of its new run (15.6 for 6)."""
    teacher = private(small_model(), noise_multiplier=3.0, **FAST)
    teacher.fit(*data(), batch_size=6, steps_per_epoch=1, verbose=0)
    goal = teacher.layers[1].kernel.value

    def loss(wanted, logits):
        return cross_entropy(wanted, logits) + tf.reduce_sum(goal**2) * tf.reduce_mean(logits, -1)

    student = private(small_model(), epsilon=6.0, planned_steps=60, loss=loss, **FAST)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=4, pad_to_multiple=24)
    if way == "fit":

        def step():
            student.fit(*data(), batch_size=6, steps_per_epoch=1, verbose=0)

    else:
        trainer, batches = tfdp.PrivateTrainer(student, sampler), iter(sampler)

        def step():
            step_of(trainer, student, loss)(next(batches))

    step()
    private(teacher, noise_multiplier=0.5, **FAST).fit(*data(), batch_size=6, verbose=0)
    of_teacher = spent(teacher)
    assert of_teacher > 6.0
    del teacher
    gc.collect()
    before = weights_of(student)
    with pytest.raises(tfdp.PrivacyBudgetExceededError, match="Received: step 2"):
        step()
    for one, other in zip(before, weights_of(student), strict=True):
        np.testing.assert_array_equal(one, other)
    assert spent(student) < 6.0

    private(student, noise_multiplier=3.0, loss=loss, **FAST)  # which asks it still
    trainer, batches = tfdp.PrivateTrainer(student, sampler), iter(sampler)
    step()
    assert spent(student) > of_teacher  # it was 1.40 for 24.4


@pytest.mark.parametrize("way", ["fit", "fit, eagerly", "an eager loop", "a graph"])
def test_a_teacher_that_an_optimizer_is_given_when_the_run_has_begun_counts(
    private, small_model, data, weights_of, way
):
    """Keras lists what an optimizer is given with its own variables, which were left out."""
    teacher = private(small_model(), noise_multiplier=0.5, delta=1e-3)
    teacher.fit(*data(), batch_size=6, epochs=2, verbose=0)
    inner = Proximal(0.1)
    student = private(small_model(), inner, epsilon=4.0, delta=1e-3)
    student.run_eagerly = way == "fit, eagerly"
    before = weights_of(student)

    def give(*_):
        inner.goals = teacher.trainable_variables

    if way.startswith("fit"):
        callback = keras.callbacks.LambdaCallback(on_epoch_begin=give)
        with pytest.raises(tfdp.PrivacyBudgetExceededError):
            student.fit(*data(), batch_size=6, callbacks=[callback], verbose=0)
    else:
        sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=4, pad_to_multiple=24)
        trainer = tfdp.PrivateTrainer(student, sampler)
        give()
        step = step_of(trainer, student)
        with pytest.raises(Exception, match="(?s)epsilon.*Received"):
            (tf.function(step) if way == "a graph" else step)(next(iter(sampler.as_dataset())))
    for one, other in zip(before, weights_of(student), strict=True):
        np.testing.assert_array_equal(one, other)
    assert spent(keras.Sequential(student.layers)) >= spent(teacher)  # in whatever model


@pytest.mark.parametrize("way", ["fit", "fit, eagerly", "a graph"])
def test_a_model_that_an_optimizer_was_given_for_a_while_counts_where_a_loss_asks_it_still(
    private, small_model, data, way
):
    """It was taken as the student's own for ever, and is trained privately later (2.4 for 15.7)."""
    teacher, inner = small_model(), Proximal(0.1)
    inner.goals = []
    loss = asking(teacher)
    student = private(small_model(), inner, epsilon=4.0, delta=DELTA, loss=loss)
    student.optimizer.planned_steps, student.run_eagerly = 40, way == "fit, eagerly"
    student.optimizer.build(student.trainable_variables)
    inner.goals.extend(teacher.trainable_variables)
    if way == "a graph":
        sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=4, pad_to_multiple=24)
        trainer, batches = tfdp.PrivateTrainer(student, sampler), iter(sampler.as_dataset())
        graph = tf.function(step_of(trainer, student, loss))

        def step():
            trainer.check_budget()
            graph(next(batches))

    else:

        def step():
            student.fit(*data(), batch_size=6, verbose=0)

    step()
    inner.goals.clear()
    private(small_model(), noise_multiplier=9.0, delta=1e-3).fit(*data(), batch_size=6, verbose=0)
    step()
    before = student.get_weights()
    private(teacher, noise_multiplier=0.5, delta=1e-3).fit(*data(), batch_size=6, verbose=0)
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        step()
    for one, other in zip(before, student.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("way", ["fit, eagerly", "an eager loop"])
def test_slots_of_a_teacher_that_are_put_into_an_optimizer_in_a_run_count(
    private, small_model, data, way
):
    """No code but Keras' reads them, of which no graph was made (4.0 for 12.7)."""

    def momentum():
        return keras.optimizers.SGD(0.1, momentum=0.9)

    teacher = private(small_model(), momentum(), noise_multiplier=0.5, delta=1e-3)
    teacher.fit(*data(), batch_size=6, epochs=2, verbose=0)
    student = private(small_model(), momentum(), noise_multiplier=3.0, delta=1e-3)
    student.run_eagerly = True

    def exchange(*_):
        slots = teacher.optimizer.inner_optimizer.momentums
        student.optimizer.inner_optimizer.momentums = slots

    if way == "an eager loop":
        sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=4, pad_to_multiple=24)
        trainer = tfdp.PrivateTrainer(student, sampler)
        exchange()
        step_of(trainer, student)(next(iter(sampler)))
    else:
        callback = keras.callbacks.LambdaCallback(on_epoch_begin=exchange)
        student.fit(*data(), batch_size=6, callbacks=[callback], verbose=0)
    student.compile("sgd", "mse")  # without the optimizer that lists them
    assert spent(student) >= spent(teacher)


def test_a_teacher_that_goes_on_counts_for_a_graph_once_a_block_of_its_student_has_ended(
    private, small_model, data
):
    """Its run was on record already: the graph went on to 15.4 for a target of 4.0."""
    teacher = private(small_model(), noise_multiplier=1.0, delta=1e-3)
    teacher.fit(*data(), batch_size=6, steps_per_epoch=1, verbose=0)
    student = private(small_model(), epsilon=4.0, delta=1e-3)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=9, pad_to_multiple=24)
    trainer = tfdp.PrivateTrainer(student, sampler)

    def forward(rows):
        wanted = tf.stop_gradient(teacher(rows["x"]))
        return tf.reduce_mean((student(rows["x"]) - wanted) ** 2, axis=-1), ()

    step = tf.function(lambda batch: trainer.apply(trainer.gradients(forward, batch)))
    batches = iter(sampler.as_dataset())
    step(next(batches))
    teacher.fit(*data(), batch_size=6, epochs=20, verbose=0)
    with tfdp.post_processing(student):
        pass
    with pytest.raises(tf.errors.InvalidArgumentError, match="which the budget allows this run"):
        step(next(batches))


@pytest.mark.parametrize("eager", [False, True])
def test_what_a_loss_comes_to_read_when_it_is_traced_again_counts_for_that_step(
    private, small_model, data, weights_of, eager
):
    teacher = private(small_model(), noise_multiplier=0.5, delta=1e-3)
    teacher.fit(*data(), batch_size=6, epochs=2, verbose=0)
    student, asks, left = small_model(), [], []

    def ask(epoch, logs=None):
        if epoch == 1:
            asks.append(True)
            left.extend(weights_of(student))
            student.make_train_function(force=True)

    private(student, epsilon=4.0, delta=DELTA, loss=asking(teacher, lambda: bool(asks)))
    student.run_eagerly, student.steps_per_execution = eager, 1 if eager else 4
    callback = keras.callbacks.LambdaCallback(on_epoch_begin=ask)
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        student.fit(*data(), batch_size=6, epochs=3, callbacks=[callback], verbose=0)
    for one, other in zip(left, weights_of(student), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_given_noise_multiplier_is_used_as_it_is(private, small_model, data):
    model = private(small_model(), noise_multiplier=1.3)
    model.fit(*data(), batch_size=6, epochs=2, verbose=0)
    sampling = Sampling.poisson(24, 6)
    entry = tfdp.accounting.LedgerEntry(sampling, 1.3, steps=8)
    assert spent(model) == tfdp.accounting.PrivacyLedger([entry]).epsilon(DELTA)


def test_no_noise_is_told_as_infinite_epsilon(private, small_model, data):
    model = private(small_model(), l2_norm_clip=1.0, noise_multiplier=0)
    model.fit(*data(), batch_size=6, verbose=0)
    assert spent(model) == math.inf
    assert "not" in tfdp.privacy_statement(model, DELTA).lower()


@pytest.mark.parametrize("steps_per_execution", [2, 3])
def test_several_steps_per_execution_keep_to_plan_and_budget(
    private, small_model, data, steps_per_execution
):
    """Four steps an epoch, which three do not divide."""
    model = private(small_model(), epsilon=3.0, steps_per_execution=steps_per_execution, **FAST)
    model.fit(*data(), batch_size=6, epochs=2, verbose=0)
    assert 2.9 <= spent(model) <= 3.0
    assert int(model.optimizer.iterations) == 8


def test_several_steps_per_execution_keep_to_the_budget_of_shuffled_passes(
    private, small_model, data, same_batches
):
    model = private(small_model(), epsilon=3.0, steps_per_execution=2, **FAST)
    model.fit(same_batches(*data()), epochs=2, sampling="shuffle", verbose=0)
    assert 2.9 <= spent(model) <= 3.0
    assert int(model.optimizer.iterations) == 6


@pytest.mark.parametrize("steps", [2, 9])
def test_a_finite_sampler_is_calibrated_for_the_steps_it_has(private, small_model, data, steps):
    model = private(small_model(), epsilon=3.0, **FAST)
    model.fit(tfdp.PoissonSampler(*data(), batch_size=6, steps=steps), verbose=0)
    assert int(model.optimizer.iterations) == steps
    assert 2.9 <= spent(model) <= 3.0


def test_the_graph_of_a_loop_takes_no_step_after_fit_has_used_its_budget(
    private, small_model, data
):
    model = private(small_model(), epsilon=3.0, **FAST)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=20)
    trainer = tfdp.PrivateTrainer(model, sampler)
    loss = keras.losses.sparse_categorical_crossentropy

    @tf.function(autograph=False)
    def step(batch):
        def forward(b):
            return loss(b["y"], model(b["x"], training=True), from_logits=True), ()

        trainer.apply(trainer.gradients(forward, batch))

    batches = iter(sampler)
    for _ in range(3):
        step(next(batches))
    with pytest.raises(tfdp.PrivacyBudgetExceededError):
        model.fit(*data(), batch_size=6, epochs=50, verbose=0)
    before = spent(model)
    # A draw of another size is traced anew, where the trainer refuses by itself.
    refused = tf.errors.InvalidArgumentError, RuntimeError
    with pytest.raises(refused, match="budget|trainer that began last"):
        step(next(batches))
    assert spent(model) == before <= 3.0


def a_release_is_recorded(model, other, path):
    tfdp.record_release(model, dp_accounting.GaussianDpEvent(1.5), "counts")


def a_file_of_its_past_is_loaded(model, other, path):
    other.save_weights(path / "other.weights.h5")
    model.load_weights(path / "other.weights.h5")


def another_model_is_mixed_in(model, other, path):
    with tfdp.post_processing(model, other):
        pairs = zip(model.get_weights(), other.get_weights(), strict=True)
        model.set_weights([(mine + theirs) / 2 for mine, theirs in pairs])


def a_block_that_ends_with_an_error(model, other, path):
    with pytest.raises(ArithmeticError), tfdp.post_processing(model, other):
        model.set_weights(other.get_weights())
        raise ArithmeticError


MORE = [
    *(a_release_is_recorded, a_file_of_its_past_is_loaded, another_model_is_mixed_in),
    a_block_that_ends_with_an_error,
]


@pytest.mark.parametrize("more", MORE)
def test_the_graph_of_a_loop_knows_what_was_recorded_since_it_was_traced(
    private, small_model, data, step_in_a_graph, tmp_path, more
):
    """A target of 8 ended at 9.43 and 11.38: graphs took all the steps they had begun with."""
    target = {"epsilon": 4.0, "planned_steps": 20, **FAST}
    model, other = private(small_model(), **target), private(small_model(), **target)
    other.fit(*data(), batch_size=6, verbose=0)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=30)
    step = step_in_a_graph(model, sampler)
    batches = iter(sampler.as_dataset())
    step(next(batches))
    more(model, other, tmp_path)
    assert spent(model) < 4.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="budget"):
        for batch in batches:
            step(batch)
    assert 3.0 < spent(model) <= 4.0


def behind(operation, seen):
    """All operations of a graph that come before this one, whatever the order of execution."""
    for each in [*(tensor.op for tensor in operation.inputs), *operation.control_inputs]:
        if each not in seen:
            seen.add(each)
            behind(each, seen)
    return seen


def test_a_graph_changes_weights_only_after_it_has_checked_that_the_step_is_allowed(
    private, small_model, data, step_in_a_graph
):
    """AdamW's decay, which needs no gradient, was applied at times: "unknown" since then."""
    inner = keras.optimizers.AdamW(0.1, weight_decay=0.3)
    model = private(small_model(), inner, epsilon=2.0, planned_steps=4, **FAST)
    sampler = tfdp.PoissonSampler(*data(), batch_size=6, steps=30)
    graph = step_in_a_graph(model, sampler).get_concrete_function().graph
    kept = {id(variable.value.handle) for variable in model.trainable_variables}
    inside = {inner.name for outer, inner in graph.captures if id(outer) in kept}
    writes = [
        operation
        for operation in graph.get_operations()
        if operation.type.startswith("Assign") and operation.inputs[0].name in inside
    ]
    assert len(writes) >= 2 * len(kept)  # decay and update
    checks = {each for each in graph.get_operations() if each.type == "If"}  # as asserts become
    for write in writes:
        assert checks and checks <= behind(write, set())
