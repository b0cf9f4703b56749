"""Values that change outside of private steps leave the spend unknown; Keras' callbacks do not."""

import contextlib
import pickle
import warnings

import h5py
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

DELTA = 1e-3


def is_unknown(model):
    return "prior spend unknown" in tfdp.privacy_statement(model, DELTA)


@pytest.fixture
def build(private, small_model):
    def build(optimizer="sgd"):
        return private(
            small_model(), optimizer, noise_multiplier=1.5, accountant="rdp", delta=DELTA
        )

    return build


@pytest.fixture
def fit(data):
    def fit(model, **arguments):
        return model.fit(*data(), batch_size=6, verbose=0, **arguments)

    return fit


@pytest.fixture
def fitted(build, fit):
    model = build()
    fit(model)
    assert not is_unknown(model)
    return model


def ordinarily_trained(model, data):
    """Another model with the same weights, after its fit."""
    ordinary = keras.Model(model.inputs, model.outputs)
    ordinary.compile("sgd", "sparse_categorical_crossentropy")
    ordinary.fit(*data(), verbose=0)
    return ordinary


def ordinary_fit_through_another_model(model, other, data, tmp_path):
    assert is_unknown(ordinarily_trained(model, data))


def ordinary_fit_of_the_encoder(model, other, data, tmp_path):
    encoder = keras.Model(model.inputs, model.layers[0].output)
    encoder.compile("sgd", "mse")
    encoder.fit(data()[0], np.ones((24, 4)), verbose=0)


def weights_of_another_model(model, other, data, tmp_path):
    model.set_weights(other.get_weights())


def a_state_tree(model, other, data, tmp_path):
    values = model.get_state_tree()["trainable_variables"]
    changed = tf.nest.map_structure(lambda value: value + 1.0, values)
    model.set_state_tree({"trainable_variables": changed})


def a_checkpoint_of_tensorflow(model, other, data, tmp_path):
    path = tf.train.Checkpoint(model=other).save(str(tmp_path / "checkpoint"))
    tf.train.Checkpoint(model=model).restore(path)
    np.testing.assert_array_equal(model.get_weights()[0], other.get_weights()[0])


def one_value_of_one_variable(model, other, data, tmp_path):
    kernel = np.array(model.layers[1].kernel)
    kernel[0, 0] = np.nextafter(kernel[0, 0], np.float32(np.inf))
    model.layers[1].kernel.assign(kernel)


def weights_loaded_by_a_model_that_keeps_no_ledger(model, other, data, tmp_path):
    tfdp.make_standard(other).save_weights(tmp_path / "other.weights.h5")
    keras.Model(model.inputs, model.outputs).load_weights(tmp_path / "other.weights.h5")


@pytest.mark.parametrize(
    "change",
    [
        ordinary_fit_through_another_model,
        ordinary_fit_of_the_encoder,
        weights_of_another_model,
        a_state_tree,
        a_checkpoint_of_tensorflow,
        one_value_of_one_variable,
        weights_loaded_by_a_model_that_keeps_no_ledger,
    ],
)
def test_a_change_outside_of_private_steps_keeps_the_ledger_and_leaves_the_spend_unknown(
    fitted, small_model, data, tmp_path, change
):
    before = tfdp.privacy_spent(fitted)
    other = small_model(seed=1)
    other.name = fitted.name
    change(fitted, other, data, tmp_path)
    assert is_unknown(fitted)
    assert tfdp.privacy_spent(fitted) == before


def test_it_stays_unknown_in_every_later_run_and_in_what_learns_from_it(fitted, fit, private):
    one_value_of_one_variable(fitted, None, None, None)
    fit(fitted)
    assert is_unknown(fitted)
    fitted.trainable = False
    other = private(
        keras.Sequential([keras.Input((5,)), fitted, keras.layers.Dense(3)]), noise_multiplier=1.5
    )
    fit(other)
    assert is_unknown(keras.Sequential([keras.Input((3,)), other.layers[-1]]))


@pytest.mark.parametrize("way", ["arrays", "a checkpoint of TensorFlow"])
def test_where_values_cannot_be_known_the_statement_says_what_it_assumes(
    fitted, small_model, tmp_path, way
):
    model = small_model(seed=1)
    if way == "arrays":
        model.set_weights(fitted.get_weights())
    else:
        a_checkpoint_of_tensorflow(model, fitted, None, tmp_path)
    text = tfdp.privacy_statement(model, DELTA)
    assert "initial weights taken as public" in text.splitlines()[0]
    assert tfdp.privacy_spent(model, DELTA) == 0.0
    text = tfdp.privacy_statement(tfdp.make_private(model), DELTA)
    assert "initial weights taken as public" in text.splitlines()[0]


def test_a_statement_of_known_runs_says_what_it_assumes_of_initial_weights(fitted):
    assert "Initial weights are taken as public" in tfdp.privacy_statement(fitted)
    one_value_of_one_variable(fitted, None, None, None)
    assert "Initial weights" not in tfdp.privacy_statement(fitted)


def test_changes_before_anything_was_spent_are_public_and_cost_no_digest(
    build, fit, data, monkeypatch
):
    model = build()

    def refuse(variables):
        assert not list(variables)
        return []

    monkeypatch.setattr("tf_lowrank_dp.spending.looks.digests", refuse)
    ordinarily_trained(model, data)
    assert not is_unknown(model)


class Ask(keras.callbacks.Callback):
    """Asks for a statement wherever a callback can."""

    def on_epoch_begin(self, epoch, logs=None):
        is_unknown(self.model)

    def on_epoch_end(self, epoch, logs=None):
        is_unknown(keras.Model(self.model.inputs, self.model.outputs))

    on_test_begin = on_test_end = lambda self, logs=None: is_unknown(self.model)
    on_train_end = on_predict_begin = on_test_begin


class Swap(keras.callbacks.SwapEMAWeights):
    """Of one's own, and no other."""


@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("swap_on_epoch", [False, True])
def test_swapping_averages_in_fit_evaluate_and_predict_is_known(
    build, fit, data, swap_on_epoch, asked
):
    model = build(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5))
    kind = Swap if asked else keras.callbacks.SwapEMAWeights
    callbacks = [kind(swap_on_epoch), *([Ask()] if asked else [])]
    fit(model, epochs=2, validation_data=data(), callbacks=callbacks)
    assert not is_unknown(model)
    swap = [keras.callbacks.SwapEMAWeights(), *callbacks[1:]]
    model.evaluate(*data(), verbose=0, callbacks=swap)
    assert not is_unknown(model)
    model.predict(data()[0], verbose=0, callbacks=swap)
    assert not is_unknown(model)
    fit(model)
    assert not is_unknown(model)


def test_early_stopping_that_restores_the_best_weights_is_known(build, fit, data):
    model, seen = build(keras.optimizers.SGD(100.0)), []
    stop = keras.callbacks.EarlyStopping(
        "loss", mode="max", patience=1, restore_best_weights=True, min_delta=1e9
    )
    watch = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(model.get_weights())
    )
    fit(model, epochs=3, callbacks=[watch, stop, Ask()])
    for restored, best in zip(model.get_weights(), seen[0], strict=True):
        np.testing.assert_array_equal(restored, best)
    assert len(seen) == 2 and not is_unknown(model)


def test_weights_as_an_epoch_left_them_are_known_when_they_are_put_back_by_hand(build, fit):
    model, kept = build(), []
    keep = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: kept.append(model.get_weights())
    )
    fit(model, epochs=3, callbacks=[keep])
    for weights in kept:
        model.set_weights(weights)
        assert not is_unknown(model)
    model.set_weights([a + b for a, b in zip(*kept[:2], strict=True)])
    assert is_unknown(model)


def test_checkpoints_that_come_with_their_ledger_are_known(fitted, fit, tmp_path):
    fitted.save_weights(tmp_path / "early.weights.h5")
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)
    fit(fitted, epochs=2, callbacks=[backup])
    fitted.load_weights(tmp_path / "early.weights.h5")
    assert not is_unknown(fitted)
    fit(fitted, epochs=3, callbacks=[backup])
    assert not is_unknown(fitted)


def by_pickle(model, path):
    return pickle.loads(pickle.dumps(model))


def by_keras(model, path):
    keras.saving.save_model(model, path)
    return keras.saving.load_model(path)


@pytest.mark.parametrize("written", [by_keras, by_pickle])
def test_a_file_that_keras_writes_by_itself_knows_of_changed_values(fitted, tmp_path, written):
    """Once the file said a clean epsilon, and the model in this process did not."""
    fitted.set_weights([value + 1.0 for value in fitted.get_weights()])
    assert is_unknown(written(fitted, tmp_path / "model.keras"))


def whole_model(fitted, path):
    fitted.save(path / "model.keras")
    return keras.models.load_model(path / "model.keras")


def weights_after_compile(fitted, path):
    fitted.save_weights(path / "model.weights.h5")
    model = keras.models.clone_model(fitted)
    model.compile(fitted.optimizer.from_config(fitted.optimizer.get_config()), fitted.loss)
    model.load_weights(path / "model.weights.h5")
    return model


def weights_loaded_once_more(fitted, path):
    """By Keras, into a model that it has loaded."""
    model = whole_model(fitted, path)
    fitted.save_weights(path / "model.weights.h5")
    model.load_weights(path / "model.weights.h5")
    return model


@pytest.mark.parametrize("load", [whole_model, weights_after_compile, weights_loaded_once_more])
@pytest.mark.parametrize("asked", [False, True])
def test_a_loaded_model_that_ordinary_training_changes_is_marked_whether_one_has_asked_or_not(
    fitted, data, tmp_path, load, asked
):
    model = load(fitted, tmp_path)
    if asked:
        assert not is_unknown(model)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(*data(), verbose=0)
    assert is_unknown(model)
    assert is_unknown(tfdp.make_private(model))


def test_an_interrupted_fit_leaves_known_values(build, fit):
    model = build()

    def interrupt(batch, logs):
        if batch == 1:
            raise KeyboardInterrupt

    stop = keras.callbacks.LambdaCallback(on_train_batch_end=interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit(model, callbacks=[stop])
    assert not is_unknown(model)
    one_value_of_one_variable(model, None, None, None)
    assert is_unknown(model)


@pytest.fixture
def loop(build, data):
    """A custom loop of three steps, with something done between them and after the last."""

    def run(between=lambda model: None, in_graph=False, batch_size=6):
        model = build("adam")
        sampler = tfdp.PoissonSampler(*data(), batch_size=batch_size, steps=3)
        trainer = tfdp.PrivateTrainer(model, sampler)

        def forward(batch):
            logits = model(batch["x"], training=True)
            return keras.losses.sparse_categorical_crossentropy(batch["y"], logits, True), logits

        def step(batch):
            trainer.apply(trainer.gradients(forward, batch))

        step = tf.function(step, reduce_retracing=True) if in_graph else step
        for batch in sampler:
            step(batch)
            between(model)
        return model

    return run


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize("asked", [False, True])
def test_a_custom_loop_is_known_and_a_change_after_it_is_not(loop, in_graph, asked):
    model = loop(is_unknown if asked else lambda model: None, in_graph)
    assert not is_unknown(model)
    one_value_of_one_variable(model, None, None, None)
    assert is_unknown(model)


def test_ordinary_updates_between_the_steps_of_a_custom_loop_are_noticed(loop):
    def update(model):
        if model.optimizer.ledger.num_steps == 1:
            one_value_of_one_variable(model, None, None, None)

    assert is_unknown(loop(update))


def refuse_a_file_of_others(model, other, path):
    tfdp.make_standard(other).save_weights(path)
    with pytest.raises(ValueError):
        model.load_weights(path)


def save_damaged(model, path):
    model.save_weights(path)
    with h5py.File(path, "r+") as file:
        file["optimizer/vars/privacy_ledger"][0] = 0


def refuse_a_damaged_file(model, other, path):
    save_damaged(model, path)
    with pytest.raises(ValueError):
        model.load_weights(path)


def load_the_layers_that_fit(model, other, path):
    other.save_weights(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras names what it leaves out
        model.load_weights(path, skip_mismatch=True)


@pytest.mark.parametrize("in_graph", [False, True])
@pytest.mark.parametrize(
    "load", [refuse_a_file_of_others, refuse_a_damaged_file, load_the_layers_that_fit]
)
def test_a_change_after_a_file_and_before_the_next_step_is_noticed(
    loop, fit, private, small_model, in_graph, load, tmp_path
):
    """Graphs compare with what they left; a file made them forget what that was."""
    other = private(
        small_model(outputs=7), "adam", noise_multiplier=1.5, accountant="rdp", delta=DELTA
    )
    fit(other)
    changes = []

    def between(model):
        if not changes:
            load(model, other, tmp_path / "other.weights.h5")
            assert not is_unknown(model)
            changes.append(one_value_of_one_variable(model, None, None, None))

    assert is_unknown(loop(between, in_graph, batch_size=24))  # all rows: it is traced once


@pytest.mark.parametrize("in_graph", [False, True])
def test_a_refused_file_of_an_earlier_step_is_no_change_of_values(loop, in_graph, tmp_path):
    path, steps = tmp_path / "model.weights.h5", []

    def between(model):
        if not steps:
            save_damaged(model, path)
        elif len(steps) == 1:
            with pytest.raises(ValueError):
                model.load_weights(path)
        steps.append(model)

    assert not is_unknown(loop(between, in_graph, batch_size=24))


class TrainsOtherwise(keras.callbacks.Callback):
    """Trains a model with the same weights in the ordinary way, at one of its hooks."""

    def __init__(self, hook, data):
        super().__init__()
        setattr(self, hook, lambda *args, **kwargs: self.train())
        self.data = data

    def train(self):
        if int(self.model.optimizer.iterations):
            ordinarily_trained(self.model, self.data)


@pytest.mark.parametrize(
    "hook",
    [
        *("on_epoch_begin", "on_epoch_end", "on_batch_end", "on_train_batch_begin"),
        *("on_train_batch_end", "on_train_end", "on_test_begin", "on_test_batch_end"),
    ],
)
def test_ordinary_training_in_a_callback_of_fit_leaves_the_spend_unknown(build, fit, data, hook):
    model = build()
    callback = TrainsOtherwise(hook, data)
    with pytest.warns(UserWarning, match=r"(?s)Expected weights .*Received: .*post_processing"):
        fit(model, epochs=2, validation_data=data(), callbacks=[[callback]])
    assert is_unknown(model)


@pytest.mark.parametrize("of_list", [False, True])
def test_ordinary_training_in_a_callback_however_it_is_passed_leaves_the_spend_unknown(
    build, fit, data, of_list
):
    model = build()
    ordinary = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: ordinarily_trained(model, data)
    )
    callbacks = keras.callbacks.CallbackList([ordinary]) if of_list else ordinary
    with pytest.warns(UserWarning, match="post_processing"):
        fit(model, callbacks=callbacks)
    assert is_unknown(model)


@pytest.mark.parametrize("method", ["evaluate", "predict"])
@pytest.mark.parametrize("by_position", [False, True])
def test_ordinary_training_in_a_callback_of_evaluate_or_predict_leaves_the_spend_unknown(
    fitted, data, method, by_position
):
    hook = {"evaluate": "on_test_end", "predict": "on_predict_begin"}[method]
    callbacks = [TrainsOtherwise(hook, data)]
    x, y = data()
    keywords = {"verbose": 0, "callbacks": callbacks}
    arguments, keywords = {
        ("evaluate", False): ([x, y], keywords),
        ("evaluate", True): ([x, y, None, 0, None, None, callbacks], {}),
        ("predict", False): ([x], keywords),
        ("predict", True): ([x, None, 0, None, callbacks], {}),
    }[method, by_position]
    with pytest.warns(UserWarning, match="post_processing"):
        getattr(fitted, method)(*arguments, **keywords)
    assert is_unknown(fitted)


class LearnsWhereItShouldNot(keras.Model):
    """Trains itself in `test_step`, and may be interrupted."""

    def __init__(self, model, error):
        super().__init__(model.inputs, model.outputs)
        self.error = error

    def test_step(self, data):
        x, y = data
        self.layers[-1].bias.assign_add(tf.ones(3) * tf.reduce_mean(tf.cast(y, tf.float32)))
        if self.error is not None:
            raise self.error
        return {"loss": 0.0}


@pytest.mark.parametrize("error", [None, KeyboardInterrupt(), ValueError("Expected")])
@pytest.mark.parametrize("in_fit", [False, True])
@pytest.mark.filterwarnings("ignore:Expected weights")
def test_what_a_test_step_learns_is_unknown_however_it_ends(
    private, small_model, data, fit, error, in_fit
):
    model = private(
        LearnsWhereItShouldNot(small_model(), error),
        noise_multiplier=1.5,
        accountant="rdp",
        delta=DELTA,
    )
    model.run_eagerly = True
    fit(model)
    assert not is_unknown(model)
    with contextlib.suppress(KeyboardInterrupt, ValueError):
        if in_fit:
            fit(model, validation_data=data())
        else:
            model.evaluate(*data(), verbose=0)
    assert is_unknown(model)


class BySetModel(keras.callbacks.Callback):
    act = None

    def set_model(self, model):
        super().set_model(model)
        type(self).act(model)


class ByAnOverriddenPart(keras.callbacks.EarlyStopping):
    act = None

    def get_monitor_value(self, logs):
        type(self).act(self.model)
        return 0.0


class BindsAHookLater(keras.callbacks.Callback):
    act = None

    def on_train_begin(self, logs=None):
        self.on_train_batch_end = lambda batch, logs=None: type(self).act(self.model)


class Slots:
    """A callback that is none of Keras' and keeps its hooks to itself."""

    __slots__ = ("act", "model")

    def set_model(self, model):
        self.model = model

    def set_params(self, params):
        pass

    def __getattr__(self, name):
        return self.on_epoch_end if name == "on_epoch_end" else (lambda *_, **__: None)

    @property
    def on_epoch_end(self):
        return lambda epoch, logs=None: self.act(self.model)


def callback_of(kind, act):
    if kind is Slots:
        slots = Slots()
        slots.act = act
        return slots
    if kind is keras.callbacks.LearningRateScheduler:
        return kind(lambda epoch, rate: (act(None), rate)[1])
    kind.act = staticmethod(act)
    return kind()


@pytest.mark.parametrize(
    "kind",
    [
        *(BySetModel, ByAnOverriddenPart, BindsAHookLater, Slots),
        keras.callbacks.LearningRateScheduler,
    ],
)
def test_ordinary_training_by_any_part_of_a_callback_leaves_the_spend_unknown(
    fitted, fit, data, kind
):
    callback = callback_of(kind, lambda _: ordinarily_trained(fitted, data))
    with pytest.warns(UserWarning, match="post_processing"):
        fit(fitted, callbacks=[callback])
    assert is_unknown(fitted)


class FindsARate(keras.callbacks.Callback):
    """Tries some rates and puts the first weights back, as learning rate finders do."""

    def on_train_begin(self, logs=None):
        self.first = self.model.get_weights()

    def on_train_batch_begin(self, batch, logs=None):
        self.model.optimizer.learning_rate = 0.1 * 2.0**batch

    def on_train_end(self, logs=None):
        self.model.set_weights(self.first)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.filterwarnings("error:Expected weights")
def test_weights_from_before_training_are_known_when_they_are_put_back(build, fit, again):
    model = build()
    if again:
        fit(model)
    fit(model, callbacks=[FindsARate()])
    fit(model)
    assert not is_unknown(model)


@pytest.mark.parametrize("hook", ["on_epoch_end", "on_train_batch_end"])
def test_what_a_hook_did_before_is_not_excused_by_post_processing_in_it(build, fit, data, hook):
    model = build()

    def train(*arguments, **keywords):
        ordinarily_trained(model, data)
        with tfdp.post_processing(model):
            pass

    fit(model, callbacks=[keras.callbacks.LambdaCallback(**{hook: train})])
    assert is_unknown(model)


def test_private_steps_in_a_hook_do_not_hide_ordinary_ones(build, fit, data, private):
    model = build()
    twin = private(keras.Model(model.inputs, model.outputs), noise_multiplier=1.5, delta=DELTA)

    def train(epoch, logs):
        fit(twin)
        ordinarily_trained(model, data)

    with pytest.warns(UserWarning, match="post_processing"):
        fit(model, callbacks=[keras.callbacks.LambdaCallback(on_epoch_end=train)])
    assert is_unknown(model)


def test_the_ledger_file_knows_what_was_found_after_the_last_step(
    private, small_model, data, fit, tmp_path
):
    path = tmp_path / "ledger.jsonl"
    model = tfdp.make_private(small_model(), ledger_path=path)
    model.compile(
        tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.5),
        "sparse_categorical_crossentropy",
    )
    train = keras.callbacks.LambdaCallback(
        on_train_end=lambda logs: ordinarily_trained(model, data)
    )
    with pytest.warns(UserWarning, match="post_processing"):
        fit(model, callbacks=[train])
    assert '"prior_spend_unknown": true' in path.read_text()


def rounds(model):
    model.set_weights([np.round(weight, 2) for weight in model.get_weights()])


def rounds_as_stated(model):
    with tfdp.post_processing(model):
        rounds(model)


def gives_back_what_an_epoch_left(model):
    values = model.get_weights()
    rounds(model)
    model.set_weights(values)


@pytest.mark.parametrize("then", [rounds, rounds_as_stated, gives_back_what_an_epoch_left])
@pytest.mark.filterwarnings("ignore:Expected weights")
def test_what_a_callback_assigns_is_known_where_it_is_stated_or_was_there(build, fit, data, then):
    model = build()
    hook = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: then(model))
    fit(model, epochs=3, callbacks=[hook])
    assert is_unknown(model) == (then is rounds)


def test_private_training_of_another_model_in_a_callback_is_known(build, fit, data, private):
    model = build()
    other = private(keras.Model(model.inputs, model.outputs), noise_multiplier=1.5, delta=DELTA)
    train = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: fit(other))
    fit(model, epochs=2, callbacks=[train])
    assert not is_unknown(model)


@pytest.mark.parametrize("then", [rounds, rounds_as_stated])
def test_what_is_assigned_after_fit_is_known_where_it_is_stated(fitted, then):
    then(fitted)
    assert is_unknown(fitted) == (then is rounds)


def test_post_processing_does_not_excuse_what_was_before(fitted):
    rounds(fitted)
    with tfdp.post_processing(fitted):
        pass
    assert is_unknown(fitted)


def test_an_average_with_another_private_model_has_spent_what_both_have(build, fit, fitted):
    other = build()
    fit(other, epochs=2)
    alone = tfdp.privacy_spent(fitted, DELTA), tfdp.privacy_spent(other, DELTA)
    pairs = zip(fitted.get_weights(), other.get_weights(), strict=True)
    with tfdp.post_processing(fitted, other):
        fitted.set_weights([(a + b) / 2 for a, b in pairs])
    assert not is_unknown(fitted)
    assert tfdp.privacy_spent(fitted, DELTA) > max(alone)
    assert tfdp.privacy_spent(other, DELTA) == alone[1]
    both = tfdp.privacy_spent(fitted, DELTA)
    with tfdp.post_processing(fitted, other, fitted):
        pass
    assert tfdp.privacy_spent(fitted, DELTA) == both


@pytest.mark.parametrize("epochs_before", [0, 1])
def test_an_average_over_a_whole_fit_has_spent_what_the_fit_has(build, fit, epochs_before):
    model, average = build(), build()
    fit(model, epochs=epochs_before)

    def halve(epoch, logs):
        pairs = zip(average.get_weights(), model.get_weights(), strict=True)
        average.set_weights([(a + b) / 2 for a, b in pairs])

    hook = keras.callbacks.LambdaCallback(on_epoch_end=halve)
    with tfdp.post_processing(average, model):
        fit(model, epochs=2, callbacks=[hook])
    assert tfdp.privacy_spent(average, DELTA) == tfdp.privacy_spent(model, DELTA) > 0
    assert not is_unknown(average)


def weights_are_put_back(model, inner, fit):
    weights = model.get_weights()
    fit(model)
    model.set_weights(weights)


def nothing_is_learnt(model, inner, fit):
    inner.learning_rate = 0.0
    fit(model)
    inner.learning_rate = 0.1


@pytest.mark.parametrize("train", [weights_are_put_back, nothing_is_learnt])
@pytest.mark.parametrize(
    "inner", [keras.optimizers.SGD(0.1, momentum=0.9), keras.optimizers.Adam(0.1)]
)
def test_what_ordinary_steps_leave_in_an_optimizer_leaves_the_spend_unknown(
    build, fit, private, inner, train
):
    """Momentum of private rows, which the next private step would add to the weights."""
    inner = type(inner).from_config(inner.get_config())
    model = build(inner)
    fit(model)
    train(tfdp.make_standard(model), inner, fit)
    private(model, inner, noise_multiplier=1.5, delta=DELTA)
    fit(model)
    assert is_unknown(model)


def test_another_optimizer_or_rate_is_no_change_of_values(build, fit, private):
    model = build(keras.optimizers.SGD(0.1, momentum=0.9))
    fit(model)
    private(model, "adam", noise_multiplier=1.5, delta=DELTA)
    fit(model)
    model.optimizer.learning_rate = 0.5
    inner = model.optimizer.inner_optimizer
    inner.iterations.assign(0)
    private(model, inner, noise_multiplier=1.0, delta=DELTA)
    fit(model)
    assert not is_unknown(model)


def test_what_is_asked_or_saved_inside_of_post_processing_is_what_was_spent_until_then(
    build, fit, tmp_path
):
    """Files of an average, or of a GAN's generator, said that nothing was released."""
    model, average, found = build(), build(), []

    class Averages(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            average.set_weights(model.get_weights())
            average.save(tmp_path / "average.keras")
            loaded = keras.models.load_model(tmp_path / "average.keras")
            found.append([tfdp.privacy_spent(each, DELTA) for each in (model, average, loaded)])

    with tfdp.post_processing(average, model):
        fit(model, epochs=2, callbacks=[Averages()])
    assert [len({*spent}) for spent in found] == [1, 1]
    assert 0 < found[0][0] < found[1][0] == tfdp.privacy_spent(average, DELTA)
    assert not is_unknown(average) and not is_unknown(model)


def test_looks_inside_of_post_processing_find_what_is_stated(build, fit):
    model = build()
    fit(model)
    spent = tfdp.privacy_spent(model, DELTA)
    with tfdp.post_processing(model):
        model.set_weights([np.round(weight, 1) for weight in model.get_weights()])
        assert tfdp.privacy_spent(model, DELTA) == spent and not is_unknown(model)
    assert not is_unknown(model)


@pytest.mark.parametrize("outer_first", [True, False])
def test_blocks_of_post_processing_tell_of_each_other(build, fit, outer_first):
    models = a, b, c = build(), build(), build()
    blocks = [(b, a), (c, b)] if outer_first else [(c, b), (b, a)]
    with tfdp.post_processing(*blocks[0]), tfdp.post_processing(*blocks[1]):
        fit(a)
        assert len({tfdp.privacy_spent(each, DELTA) for each in models}) == 1
    assert len({tfdp.privacy_spent(each, DELTA) for each in models}) == 1


def test_an_inner_optimizer_of_ordinary_steps_is_warned_of(fit, private, small_model):
    """Its momentum moved the first private step by 535 clips."""
    model, inner = small_model(), keras.optimizers.SGD(0.1, momentum=0.9)
    model.compile(inner, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    fit(model)
    private(model, inner, noise_multiplier=1.0)
    with pytest.warns(UserWarning, match="ordinary steps.*make a new optimizer"):
        fit(model)


@pytest.mark.parametrize("made_by", ["average", "ordinary training"])
def test_copies_of_what_was_computed_from_private_models_are_known_by_their_file(
    made_by, build, fit, data, tmp_path
):
    """No step of its own has made these values: an average of weights, a student's."""
    one, other, made = build(), build(), build()
    fit(one), fit(other)
    with tfdp.post_processing(made, one, other):
        if made_by == "average":
            pairs = zip(one.get_weights(), other.get_weights(), strict=True)
            made.set_weights([(a + b) / 2.0 for a, b in pairs])
        else:
            student = keras.Model(made.inputs, made.outputs)
            student.compile("sgd", "mse")
            student.fit(data()[0], one.predict(data()[0], verbose=0), verbose=0)
    spent = tfdp.privacy_spent(made, DELTA)
    assert spent > tfdp.privacy_spent(one, DELTA)
    made.save(tmp_path / "made.keras")
    loaded = keras.models.load_model(tmp_path / "made.keras")
    copy = keras.models.clone_model(loaded)
    assert tfdp.privacy_spent(copy, DELTA) == 0.0
    copy.set_weights(loaded.get_weights())
    assert tfdp.privacy_spent(copy, DELTA) == pytest.approx(spent)


def test_what_a_block_leaves_as_it_was_is_not_taken_for_computed(build, fit, tmp_path):
    """A public backbone in a file of an average may be met anywhere."""
    one, made = build(), build()
    fit(one)
    public = made.layers[0].get_weights()
    with tfdp.post_processing(made, one):
        made.layers[-1].set_weights(one.layers[-1].get_weights())
    made.save(tmp_path / "made.keras")
    keras.models.load_model(tmp_path / "made.keras")
    other = build()
    other.layers[0].set_weights(public)
    assert tfdp.privacy_spent(other, DELTA) == 0.0


def test_models_in_a_list_are_refused_with_a_sentence(small_model):
    model, teacher = small_model(), small_model()
    with (
        pytest.raises(TypeError, match="each model as an argument of its own"),
        tfdp.post_processing(model, [teacher]),
    ):
        pass
