"""No step is taken of which no epsilon could be stated together with what was spent before."""

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf
from dp_accounting import dp_event

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import Sampling

DELTA = 1e-3
WITHOUT_RENYI_BOUND = dp_event.DiscreteLaplaceDpEvent(0.5, 1)


def two_rows_each(x):
    """Arguments of a `fit` by user."""
    return {"unit_ids": np.arange(len(x)) // 2, "rows_per_unit": 2, "batch_size": 3}


def weights(model):
    return [np.array(variable) for variable in model.trainable_variables]


@pytest.mark.parametrize("accountant", ["pld", "rdp"])
def test_an_event_without_a_renyi_bound_is_refused_by_that_accountant_before_a_step(
    accountant, small_model, data, private
):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA, accountant=accountant)
    tfdp.record_release(model, WITHOUT_RENYI_BOUND, "a vocabulary")
    before = weights(model)
    if accountant == "rdp":
        with pytest.raises(ValueError, match="(?s)to be 'pld'.*Received.*set it on the optimizer"):
            model.fit(*data(), batch_size=6, verbose=0)
        assert all(map(np.array_equal, before, weights(model)))
        private(model, noise_multiplier=2.0, delta=DELTA, accountant="pld")  # the remedy
    model.fit(*data(), batch_size=6, verbose=0)
    assert tfdp.privacy_spent(model) > 0.1


def test_passes_after_draws_are_refused_by_rdp_before_a_step(
    small_model, data, private, same_batches
):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA, accountant="rdp")
    model.fit(*data(), batch_size=6, verbose=0)
    before, spent = weights(model), tfdp.privacy_spent(model)
    with pytest.raises(ValueError, match="(?s)Poisson sampling and shuffled passes.*Received"):
        model.fit(same_batches(*data()), sampling="shuffle", verbose=0)
    assert all(map(np.array_equal, before, weights(model)))
    assert tfdp.privacy_spent(model) == spent
    private(model, noise_multiplier=2.0, delta=DELTA, accountant="pld")
    model.fit(same_batches(*data()), sampling="shuffle", verbose=0)
    assert tfdp.privacy_spent(model) > spent


SEARCH = dp_event.RepeatAndSelectDpEvent(dp_accounting.GaussianDpEvent(9.0), 2.0, 1.0)


@pytest.mark.parametrize("event", [dp_accounting.LaplaceDpEvent(9.0), SEARCH])
def test_shuffled_passes_and_what_has_no_epsilon_there_refuse_each_other(
    event, small_model, data, private, same_batches
):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    model.fit(same_batches(*data()), sampling="shuffle", verbose=0)
    spent = tfdp.privacy_spent(model)
    with pytest.raises(ValueError, match="Expected Gaussians beside shuffled passes"):
        tfdp.record_release(model, event, "counts")
    assert tfdp.privacy_spent(model) == spent
    tfdp.record_release(model, dp_accounting.GaussianDpEvent(9.0), "a bound of it")
    assert spent < tfdp.privacy_spent(model) < np.inf

    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    tfdp.record_release(model, event, "counts")
    before, spent = weights(model), tfdp.privacy_spent(model)
    with pytest.raises(ValueError, match="(?s)Expected Poisson samples.*Leave sampling out"):
        model.fit(same_batches(*data()), sampling="shuffle", verbose=0)
    assert all(map(np.array_equal, before, weights(model)))
    model.fit(*data(), batch_size=6, verbose=0)  # the remedy
    assert spent < tfdp.privacy_spent(model) < np.inf


def test_a_release_by_example_is_refused_after_steps_by_user(small_model, data, private):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    x, y = data()
    users = two_rows_each(x)
    model.fit(x, y, **users, verbose=0)
    spent, event = tfdp.privacy_spent(model), dp_accounting.GaussianDpEvent(9.0)
    with pytest.raises(ValueError, match="(?s)release by example, after releases by user.*'user'"):
        tfdp.record_release(model, event, "a mean")
    assert tfdp.privacy_spent(model) == spent
    tfdp.record_release(model, event, "a mean", unit="user")  # the remedy
    model.fit(x, y, **users, verbose=0)
    assert spent < tfdp.privacy_spent(model) < np.inf


@pytest.fixture
def by_user(data, private):
    """Trains models by user, on two rows of each."""

    def train(model):
        private(model, noise_multiplier=2.0, delta=DELTA)
        x, y = data()
        users = two_rows_each(x)
        model.fit(x, y, **users, verbose=0)
        return users

    return train


def steps_of(student, teacher, way, data, private):
    """What takes a step of a student by example that asks its teacher, by fit or a loop."""
    x, y = data()

    def loss(wanted, logits):
        asked = tf.nn.softmax(tf.stop_gradient(teacher(tf.zeros([1, 5]))))
        given = keras.losses.sparse_categorical_crossentropy(wanted, logits, from_logits=True)
        return given + tf.reduce_sum(asked * tf.nn.softmax(logits), axis=-1)

    if way == "fit":
        private(student, noise_multiplier=3.0, delta=DELTA, loss=loss)
        return lambda: student.fit(x, y, batch_size=6, steps_per_epoch=1, verbose=0)
    private(student, noise_multiplier=3.0, delta=DELTA)
    sampler = tfdp.PoissonSampler(x, y, batch_size=6, steps=9, pad_to_multiple=24)
    trainer, batches = tfdp.PrivateTrainer(student, sampler), iter(sampler.as_dataset())

    def step(batch):
        def forward(rows):
            return loss(rows["y"], student(rows["x"])), ()

        trainer.apply(trainer.gradients(forward, batch))

    step = tf.function(step) if way == "a graph" else step

    def take():
        trainer.check_budget()
        step(next(batches))

    return take


def test_a_student_with_a_target_is_told_of_the_unit_and_not_of_its_target(
    small_model, data, private, by_user
):
    """The noise was calibrated first, and no target could have been enough."""
    teacher, student = small_model(), small_model()
    by_user(teacher)

    def loss(y_true, y_pred):
        return keras.losses.mean_squared_error(teacher.layers[1].bias, y_pred)

    private(student, loss=loss, epsilon=1000.0, delta=DELTA)
    with pytest.raises(ValueError, match="(?s)one unit of privacy.*learns from"):
        student.fit(*data(), batch_size=6, verbose=0)
    assert tfdp.privacy_spent(student) == 0.0


WAYS = ["fit", "a graph", "an eager loop"]


@pytest.mark.parametrize("way", WAYS)
def test_a_student_by_example_of_a_teacher_by_user_is_refused_before_a_step(
    small_model, data, private, by_user, way
):
    """Its epsilon was infinite for ever, without a word."""
    teacher, student = small_model(), small_model()
    users = by_user(teacher)
    private(student, noise_multiplier=2.0, delta=DELTA)
    student.fit(*data(), batch_size=6, verbose=0)
    before, spent = weights(student), tfdp.privacy_spent(student)
    take = steps_of(student, teacher, way, data, private)
    with pytest.raises(ValueError, match="(?s)one unit of privacy.*learns from.*with unit_ids"):
        take()
    assert all(map(np.array_equal, before, weights(student)))
    assert tfdp.privacy_spent(student) == spent < np.inf
    if way == "fit":  # the remedy
        student = small_model()
        steps_of(student, teacher, way, data, private)
        student.fit(*data(), **users, verbose=0)
    else:  # without the teacher it goes on
        student.fit(*data(), batch_size=6, verbose=0)
    assert spent < tfdp.privacy_spent(student) < np.inf


@pytest.mark.parametrize("way", WAYS)
def test_a_student_is_refused_once_its_teacher_has_learnt_by_user(
    small_model, data, private, by_user, way
):
    teacher, student = small_model(), small_model()
    take = steps_of(student, teacher, way, data, private)
    take()
    spent = tfdp.privacy_spent(student)
    by_user(teacher)
    before = weights(student)
    with pytest.raises(ValueError, match="one unit of privacy"):
        take()
    assert all(map(np.array_equal, before, weights(student)))
    assert tfdp.privacy_spent(student) == spent < np.inf


def round_it(student, tmp_path):
    with tfdp.post_processing(student):
        student.set_weights([np.round(weight, 2) for weight in student.get_weights()])


def put_back(student, tmp_path):
    student.save_weights(tmp_path / "before.weights.h5")
    student.load_weights(tmp_path / "before.weights.h5")


def record(student, tmp_path):
    tfdp.record_release(student, dp_accounting.GaussianDpEvent(90.0), "a mean")


@pytest.mark.parametrize("then", [round_it, put_back, record])
def test_a_student_is_still_refused_after_something_was_recorded_for_it(
    small_model, data, private, by_user, tmp_path, then
):
    """It had what its teacher had learnt by user at once, before a step, and went on."""
    teacher, student = small_model(), small_model()
    take = steps_of(student, teacher, "an eager loop", data, private)
    take()
    spent = tfdp.privacy_spent(student)
    by_user(teacher)
    then(student, tmp_path)
    assert spent <= tfdp.privacy_spent(student) < 1.1 * spent
    with pytest.raises(ValueError, match="one unit of privacy"):
        take()


def test_passes_are_refused_after_a_release_that_was_recorded_since_their_trainer_was_made(
    small_model, data, private
):
    model = private(small_model(), noise_multiplier=2.0, delta=DELTA)
    trainer = tfdp.PrivateTrainer(model, Sampling.shuffle(24, 8), steps=3)
    tfdp.record_release(model, dp_accounting.LaplaceDpEvent(9.0), "counts")
    with pytest.raises(ValueError, match="Expected Poisson samples"):
        trainer.check_budget()


def test_a_student_in_a_callback_of_its_teachers_first_fit_by_user_is_refused(
    small_model, data, private
):
    """The teacher had taken no step then."""
    teacher, student = small_model(), small_model()
    take, refused = steps_of(student, teacher, "an eager loop", data, private), []

    def try_it(batch, logs=None):
        with pytest.raises(ValueError, match="one unit of privacy"):
            take()
        refused.append(batch)

    private(teacher, noise_multiplier=2.0, delta=DELTA)
    x, y = data()
    callback = keras.callbacks.LambdaCallback(on_train_batch_begin=try_it)
    teacher.fit(x, y, **two_rows_each(x), callbacks=[callback], verbose=0)
    assert refused and tfdp.privacy_spent(student) == 0.0


@pytest.mark.parametrize("way", WAYS)
def test_a_student_with_a_release_that_has_no_epsilon_beside_its_teachers_passes_is_refused(
    small_model, data, private, same_batches, way
):
    teacher, student = small_model(), small_model()
    private(teacher, noise_multiplier=2.0, delta=DELTA)
    teacher.fit(same_batches(*data()), sampling="shuffle", verbose=0)
    tfdp.record_release(student, dp_accounting.LaplaceDpEvent(9.0), "counts")
    spent = tfdp.privacy_spent(student, DELTA)
    with pytest.raises(ValueError, match="Expected Poisson samples, of models that it learns from"):
        steps_of(student, teacher, way, data, private)()
    assert tfdp.privacy_spent(student, DELTA) == spent < np.inf
