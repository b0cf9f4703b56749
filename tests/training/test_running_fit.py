"""While `fit` runs, what is executed is what is counted: no other run, step or data gets in."""

import threading
from concurrent.futures import ThreadPoolExecutor

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf
from dp_accounting.rdp import RdpAccountant

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.training.running_fit import executing
from tf_lowrank_dp.training.start_run import start_run
from tf_lowrank_dp.training.state import ledger_of, state_of

DELTA, ROWS, NOISE = 1e-5, 1000, 1.0
OUTER, INNER, STEPS = 500, 8, 40  # batch sizes, so q = 0.5 and q = 0.008


def epsilon_of(*steps_at_rates):
    """Epsilon of Poisson-sampled Gaussians, composed by dp_accounting; RDP is fast."""
    accountant = RdpAccountant()
    gaussian = dp_accounting.GaussianDpEvent(NOISE)
    for steps, rate in steps_at_rates:
        event = dp_accounting.PoissonSampledDpEvent(rate, gaussian)
        accountant.compose(event, steps)
    return accountant.get_epsilon(DELTA)


@pytest.fixture
def model(small_model, private):
    return private(small_model(), noise_multiplier=NOISE, accountant="rdp")


@pytest.fixture
def rows(data):
    return data(ROWS)


class Intruder(keras.callbacks.Callback):
    """Does something in one place of the outer `fit`, and keeps the error."""

    def __init__(self, act, place="on_train_batch_begin", at=1):
        super().__init__()
        self.error, self._act, self._at = None, act, at
        setattr(self, place, self._intrude)

    def _intrude(self, index=None, logs=None):
        if not isinstance(index, int) or index == self._at:  # other hooks get logs only
            try:
                self._act()
            except Exception as error:
                self.error = error


def outer_fit(model, rows, *callbacks, steps=STEPS, **arguments):
    model.fit(
        *rows, batch_size=OUTER, steps_per_epoch=steps, verbose=0, callbacks=callbacks, **arguments
    )


def steps_of(model):
    return ledger_of(model).num_steps


def inner_fit(model, rows):
    model.fit(*rows, batch_size=INNER, steps_per_epoch=1, verbose=0)


def inner_fit_in_a_thread(model, rows):
    with ThreadPoolExecutor(1) as thread:
        thread.submit(inner_fit, model, rows).result()


def inner_trainer(model, rows):
    tfdp.PrivateTrainer(model, tfdp.PoissonSampler(*rows, batch_size=INNER, steps=1))


def inner_run(model, rows):
    start_run(model, tfdp.PoissonSampler(*rows, batch_size=INNER).sampling, 1)


NESTED = [inner_fit, inner_fit_in_a_thread, inner_trainer, inner_run]


@pytest.mark.parametrize("nested", NESTED)
def test_another_run_in_a_callback_is_refused_and_the_outer_one_counts_at_its_rate(
    model, rows, nested
):
    """Once 40 steps at q = 0.5 were taken for 40 at q = 0.008: the inner step went on."""
    intruder = Intruder(lambda: nested(model, rows), at=0)
    outer_fit(model, rows, intruder)
    assert isinstance(intruder.error, RuntimeError)
    for part in ("one training of a private model at a time", "Train on after fit has ended"):
        assert part in str(intruder.error)
    assert tfdp.privacy_spent(model, DELTA) == pytest.approx(epsilon_of((STEPS, 0.5)), rel=1e-3)
    inner_fit(model, rows)  # the remedy
    true = epsilon_of((STEPS, 0.5), (1, INNER / ROWS))
    assert tfdp.privacy_spent(model, DELTA) == pytest.approx(true, rel=1e-3)


@pytest.mark.parametrize(
    "place", ["on_train_begin", "on_epoch_begin", "on_train_batch_end", "on_epoch_end"]
)
def test_another_run_is_refused_wherever_a_callback_begins_it(model, rows, place):
    intruder = Intruder(lambda: inner_fit(model, rows), place, at=0)
    outer_fit(model, rows, intruder, steps=2, epochs=2)
    assert "while its fit is running" in str(intruder.error)
    assert [entry.sampling.batch_size for entry in ledger_of(model).entries] == [OUTER]
    assert steps_of(model) == 4


def test_another_run_in_the_data_is_refused(model, rows):
    errors = []

    def batches():
        for _ in range(3):
            try:
                inner_fit(model, rows)
            except RuntimeError as error:
                errors.append(str(error))
            yield rows[0][:8], rows[1][:8]

    data = tf.data.Dataset.from_generator(
        batches,
        output_signature=(tf.TensorSpec((None, 5)), tf.TensorSpec((None,), tf.int32)),
    )
    model.fit(
        data, sampling="poisson", sampling_rate=0.5, num_examples=ROWS, steps_per_epoch=3,
        verbose=0,
    )  # fmt: skip
    assert any("while its fit is running" in error for error in errors)
    entries = ledger_of(model).entries
    assert entries[-1].steps == 3 and entries[-1].sampling.sampling_rate == 0.5


def compiled_anew(model, rows):
    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=9.0),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )


def compiled_with_the_same_optimizer(model, rows):
    model.compile(model.optimizer, loss="mse")


def another_optimizer(model, rows):
    model.optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=9.0)


def converted_anew(model, rows):
    tfdp.make_private(model, microbatch_size=4)


def made_standard(model, rows):
    tfdp.make_standard(model)
    model.make_train_function()


def optimizer_of_another_model(model, rows):
    other = keras.Sequential([keras.Input((5,)), *model.layers])
    tfdp.make_private(other)
    other.compile(model.optimizer, loss=model.loss)
    inner_fit(other, rows)


def run_of_its_own(model, rows):
    """What refusals do not see: the attributes themselves."""
    state_of(model).run = None


EXCHANGED = [
    compiled_anew,
    compiled_with_the_same_optimizer,
    another_optimizer,
    converted_anew,
    made_standard,
    run_of_its_own,
]


@pytest.mark.parametrize("exchange", EXCHANGED)
def test_no_step_is_taken_after_a_callback_has_exchanged_something(
    model, rows, exchange, weights_of
):
    weights = []

    def act():
        exchange(model, rows)
        weights.append(weights_of(model))

    with pytest.raises(tfdp.NotPrivateError, match="as it was when fit began.*after fit has ended"):
        outer_fit(model, rows, Intruder(act), steps=5)
    for before, after in zip(weights[0], weights_of(model), strict=True):
        np.testing.assert_array_equal(before, after)
    tfdp.make_private(model)
    assert ledger_of(model).entries[0].steps == 1
    compiled_anew(model, rows)
    outer_fit(model, rows, steps=2)  # the remedy
    assert ledger_of(model).entries[-1].steps == 2


@pytest.mark.parametrize("eager", [True, False])
def test_a_layer_that_a_callback_unfreezes_is_not_trained(model, rows, eager):
    """It would be updated by steps that its ledger does not know."""
    model.compile(model.optimizer, loss=model.loss, run_eagerly=eager)
    model.layers[0].trainable = False
    weights = model.layers[0].get_weights()

    def unfreeze():
        model.layers[0].trainable = True
        model.make_train_function(force=True)

    with pytest.raises(RuntimeError, match="frozen or unfrozen since.*fit once for each stage"):
        outer_fit(model, rows, Intruder(unfreeze), steps=5)
    for before, after in zip(weights, model.layers[0].get_weights(), strict=True):
        np.testing.assert_array_equal(before, after)
    assert ledger_of(model).entries[-1].steps == 1


def test_another_model_that_trains_the_same_layers_meanwhile_is_counted(model, rows):
    outer_fit(model, rows, Intruder(lambda: optimizer_of_another_model(model, rows)), steps=5)
    assert sorted(entry.steps for entry in ledger_of(model).entries) == [1, 5]


def test_a_new_train_function_of_the_same_run_goes_on(model, rows):
    intruder = Intruder(lambda: model.make_train_function(force=True))
    outer_fit(model, rows, intruder, steps=3)
    assert intruder.error is None
    assert steps_of(model) == 3


def foreign(rows):
    batch = {"x": rows[0][:9], "y": rows[1][:9], "presence": np.ones(9, "float32")}
    return tf.data.Dataset.from_tensors(batch).repeat()


def by_train_function(model, rows):
    model.train_function(iter(foreign(rows)))


def by_train_function_in_a_thread(model, rows):
    with ThreadPoolExecutor(1) as thread:
        thread.submit(by_train_function, model, rows).result()


def by_a_new_train_function(model, rows):
    model.make_train_function(force=True)
    by_train_function(model, rows)


def by_keras_train_function(model, rows):
    """Keras' own, around our step."""
    kept = model.train_function
    keras.Model.make_train_function(model, force=True)
    model.train_function, function = kept, model.train_function
    function(iter(foreign(rows)))


def by_train_step(model, rows):
    model.train_step(next(iter(foreign(rows))))


def by_a_traced_train_step(model, rows):
    tf.function(model.train_step, autograph=False)(next(iter(foreign(rows))))


def by_train_on_batch(model, rows):
    model.train_on_batch(rows[0][:9], rows[1][:9])


FOREIGN = [
    by_train_function,
    by_train_function_in_a_thread,
    by_a_new_train_function,
    by_keras_train_function,
    by_train_step,
    by_a_traced_train_step,
    by_train_on_batch,
]


@pytest.mark.parametrize("step", FOREIGN)
@pytest.mark.parametrize("place", ["on_train_batch_begin", "on_train_batch_end"])
def test_steps_by_hand_on_other_data_are_refused_while_fit_runs(model, rows, step, place):
    intruder = Intruder(lambda: step(model, rows), place)
    outer_fit(model, rows, intruder, steps=3)
    assert isinstance(intruder.error, tfdp.NotPrivateError)
    assert "Use model.fit, or tfdp.PrivateTrainer" in str(intruder.error)
    assert steps_of(model) == 3


@pytest.mark.parametrize("step", FOREIGN)
def test_steps_by_hand_on_other_data_are_refused_after_fit(model, rows, step):
    outer_fit(model, rows, steps=2)
    with pytest.raises(tfdp.NotPrivateError, match="Use model.fit, or tfdp.PrivateTrainer"):
        step(model, rows)
    assert steps_of(model) == 2


def test_a_thread_cannot_take_the_execution_that_was_allowed_to_another(model, rows):
    """Between the check before a step and the step itself."""
    errors = []

    class Late(keras.callbacks.ProgbarLogger):
        def on_train_batch_begin(self, batch, logs=None):
            with ThreadPoolExecutor(1) as thread:
                errors.append(thread.submit(by_train_function, model, rows).exception())

    guard = keras.callbacks.CallbackList._add_default_callbacks

    def late(self, *arguments):
        guard(self, *arguments)
        self.callbacks.append(Late())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.callbacks.CallbackList, "_add_default_callbacks", late)
        outer_fit(model, rows, steps=2)
    assert [type(error) for error in errors] == [tfdp.NotPrivateError] * 2
    assert steps_of(model) == 2


def test_a_train_function_of_an_earlier_run_is_refused_in_a_later_fit(model, rows):
    inner_fit(model, rows)
    earlier = model.train_function

    def act():
        model.train_function = earlier

    with pytest.raises(tfdp.NotPrivateError, match="train function of an earlier fit"):
        outer_fit(model, rows, Intruder(act), steps=3)
    assert [entry.steps for entry in ledger_of(model).entries] == [1, 1]


def test_a_step_of_an_earlier_run_is_refused(model, rows):
    inner_fit(model, rows)
    earlier = state_of(model).run
    outer_fit(model, rows, steps=1)
    with executing(earlier), pytest.raises(tfdp.NotPrivateError, match="train_step outside of fit"):
        by_train_step(model, rows)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_after_an_interruption_the_model_trains_on(model, rows, error):
    class Interrupts(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            if batch == 2:
                raise error

    with pytest.raises(error):
        outer_fit(model, rows, Interrupts(), steps=4)
    assert steps_of(model) == 2
    outer_fit(model, rows, steps=1)
    assert steps_of(model) == 3


def test_two_threads_cannot_train_one_model(model, rows):
    inside, done = threading.Event(), threading.Event()

    def wait():
        inside.set()
        done.wait(60)

    with ThreadPoolExecutor(1) as thread:
        outer = thread.submit(outer_fit, model, rows, Intruder(wait), steps=3)
        inside.wait(60)
        try:
            with pytest.raises(RuntimeError, match="while its fit is running"):
                inner_fit(model, rows)
        finally:
            done.set()
        outer.result()
    assert [entry.steps for entry in ledger_of(model).entries] == [3]


def test_another_model_may_be_trained_meanwhile(model, rows, small_model, private):
    other = private(small_model(seed=1), noise_multiplier=NOISE, accountant="rdp")
    intruder = Intruder(lambda: inner_fit(other, rows))
    outer_fit(model, rows, intruder, steps=3)
    assert intruder.error is None
    assert tfdp.privacy_spent(model, DELTA) == pytest.approx(epsilon_of((3, 0.5)), rel=1e-3)
    inner = epsilon_of((1, INNER / ROWS))
    assert tfdp.privacy_spent(other, DELTA) == pytest.approx(inner, rel=1e-3)


def test_callbacks_of_keras_go_on_working(model, rows, tmp_path):
    checkpoint = tmp_path / "best.weights.h5"
    callbacks = [
        keras.callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(checkpoint, save_weights_only=True, save_best_only=True),
        keras.callbacks.BackupAndRestore(tmp_path / "backup"),
        keras.callbacks.LearningRateScheduler(lambda epoch: 0.1 / (epoch + 1)),
        Intruder(lambda: model.load_weights(checkpoint), "on_epoch_begin"),
        Intruder(lambda: model.evaluate(*rows, verbose=0)),
    ]
    outer_fit(model, rows, *callbacks, steps=2, epochs=2, validation_data=rows)
    assert [callback.error for callback in callbacks[-2:]] == [None, None]
    assert steps_of(model) == 4


def test_two_models_with_the_same_weights_are_not_trained_in_two_threads():
    """Each would be checked against its budget without the steps that the other is taking."""
    x, y = np.zeros((20, 3), "float32"), np.zeros((20, 1), "float32")
    inputs, layer = keras.Input((3,)), keras.layers.Dense(1)
    both = []
    for _ in range(2):
        model = tfdp.make_private(keras.Model(inputs, layer(inputs)))
        model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), "mse")
        both.append(model)
    one, other = both
    found = []

    def meanwhile(batch, logs):
        with ThreadPoolExecutor(1) as thread:
            found.append(thread.submit(other.fit, x, y, batch_size=5, verbose=0).exception())

    callback = keras.callbacks.LambdaCallback(on_train_batch_begin=meanwhile)
    one.fit(x, y, batch_size=5, verbose=0, callbacks=[callback])
    assert len(found) == 4
    assert all("one after the other" in str(error) for error in found)
    other.fit(x, y, batch_size=5, verbose=0)
    assert sorted(entry.steps for entry in ledger_of(one).entries) == [4, 4]


@pytest.mark.parametrize("kind", ["model.keras", "model.weights.h5"])
def test_a_file_that_another_thread_saves_while_fit_goes_on_says_so(model, rows, tmp_path, kind):
    """Keras writes the inner optimizer last, of later steps than the ledger: 0.73 said for 0.82."""
    path = tmp_path / kind

    def save():
        (model.save if path.suffix == ".keras" else model.save_weights)(path)

    def elsewhere(*_):
        with ThreadPoolExecutor(1) as thread, pytest.warns(UserWarning, match="while fit trains"):
            thread.submit(save).result()

    intruder = Intruder(elsewhere, "on_train_batch_end")
    model.fit(*rows, batch_size=OUTER, verbose=0, callbacks=[intruder])
    assert intruder.error is None
    assert not ledger_of(model).prior_spend_unknown
    if path.suffix == ".keras":
        loaded = keras.models.load_model(path)
    else:
        loaded = model
        loaded.load_weights(path)
    assert ledger_of(loaded).prior_spend_unknown


def test_files_that_a_callback_or_another_thread_after_fit_saves_are_as_known(
    model, rows, tmp_path, recwarn
):
    saved = Intruder(lambda *_: model.save(tmp_path / "a.keras"), "on_train_batch_end")
    model.fit(*rows, batch_size=OUTER, verbose=0, callbacks=[saved])
    with ThreadPoolExecutor(1) as thread:
        thread.submit(model.save, tmp_path / "b.keras").result()
    for name in ("a.keras", "b.keras"):
        loaded = keras.models.load_model(tmp_path / name)
        assert not ledger_of(loaded).prior_spend_unknown
    assert not [w for w in recwarn if "while fit trains" in str(w.message)]
