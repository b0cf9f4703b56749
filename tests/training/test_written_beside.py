"""What a callback writes into variables that steps read and nobody trains is told.

Guarantee (`told_what_is_written_beside`): `fit`, `evaluate` and `predict` warn where others have
written such a variable.
Guarantee (`tell_what_is_written_beside`): so does whatever saves the model.
"""

import gc
import pickle
import warnings

import dp_accounting
import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

NEVER_TRAINED = "read and nobody trains"


@keras.saving.register_keras_serializable("tests")
class Bank(keras.layers.Layer):
    """Takes prototypes off, which nobody trains."""

    def __init__(self, size=3, **arguments):
        super().__init__(**arguments)
        self.size = size

    def build(self, shape):
        self.kept = self.add_weight(shape=(self.size,), trainable=False, initializer="zeros")

    def call(self, x):
        return x - self.kept


@pytest.fixture
def case(private, data):
    """Builds a model, and the variable that its steps read."""

    def build(where, size=3):
        bank, foreign = Bank(size), tf.Variable(tf.zeros([size]))
        layers = [keras.layers.Dense(3), *([bank] if where == "weight" else [])]
        model = keras.Sequential([keras.Input((5,)), *layers])
        entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

        def loss(y, logits):
            return entropy(y, logits - foreign if where == "loss" else logits)

        private(model, noise_multiplier=2.0, delta=1e-3, loss=loss)
        return model, bank.kept if where == "weight" else foreign

    return build


class Fills(keras.callbacks.Callback):
    """With what it is given, in one hook."""

    def __init__(self, variable, value, hook="on_epoch_end", within=None):
        super().__init__()
        self.within = within
        setattr(self, hook, lambda *_, logs=None: self.fill(variable, value))

    def fill(self, variable, value):
        if self.within is None:
            variable.assign(value)
            return
        with tfdp.post_processing(self.within):
            variable.assign_add(value)


def warned_of(model, data, *callbacks):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(*data(), batch_size=8, epochs=3, verbose=0, callbacks=[*callbacks])
    return sum(NEVER_TRAINED in str(each.message) for each in found)


HOOKS = ["on_train_begin", "on_epoch_begin", "on_train_batch_end", "on_epoch_end", "on_train_end"]


@pytest.mark.parametrize("where", ["weight", "loss"])
def test_a_bank_that_a_callback_fills_is_warned_of(where, case, data):
    model, variable = case(where)
    for number, hook in enumerate(HOOKS, start=1):
        fill = Fills(variable, number * data()[0].mean(0)[:3], hook)
        assert warned_of(model, data, fill) == 1


@pytest.mark.parametrize("where", ["weight", "loss"])
def test_a_function_of_a_stock_callback_is_one_of_the_users(where, case, data):
    model, variable = case(where)

    def rate(epoch):
        variable.assign(np.ones(3))
        return 0.1

    assert warned_of(model, data, keras.callbacks.LearningRateScheduler(rate)) == 1
    fill = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: variable.assign(np.zeros(3)))
    assert warned_of(model, data, fill) == 1


@pytest.mark.parametrize("where", ["weight", "loss"])
def test_a_bank_that_is_filled_between_two_calls_is_warned_of(where, case, data):
    model, variable = case(where)
    assert warned_of(model, data) == 0
    assert warned_of(model, data) == 0
    variable.assign(np.ones(3))
    assert warned_of(model, data) == 1


class Adapts(keras.Sequential):
    """Writes what it is asked with into the variable that its steps read."""

    writes = False

    def test_step(self, data):
        self.fill(keras.tree.flatten(data)[0])
        return super().test_step(data)

    def predict_step(self, data):
        self.fill(keras.tree.flatten(data)[0])
        return super().predict_step(data)

    def fill(self, x):
        if self.writes:
            self.layers[-1].kept.assign(tf.reduce_max(x, 0)[:3])


def trained_by_fit(model, data):
    assert warned_of(model, data) == 0


def trained_by_a_loop(model, data, read=0.0, graph=False, between=lambda: None):
    sampler = tfdp.PoissonSampler(*data(), batch_size=8, steps=2)
    trainer = tfdp.PrivateTrainer(model, sampler, steps=2)

    def forward(batch):
        logits = model(batch["x"], training=True) - read
        return keras.losses.sparse_categorical_crossentropy(batch["y"], logits, True), logits

    def step(batch):
        gradients = trainer.gradients(forward, batch)
        between()
        trainer.apply(gradients)

    if graph:
        step = tf.function(step, reduce_retracing=True)
    for batch in sampler:
        step(batch)


TRAINED = pytest.mark.parametrize("train", [trained_by_fit, trained_by_a_loop])


@TRAINED
@pytest.mark.parametrize("ask", ["evaluate", "predict"])
def test_a_bank_that_a_model_fills_when_it_is_asked_is_warned_of_at_once(ask, train, private, data):
    """No `fit` followed: the exact maximum of a feature was in the file, without a word."""
    model = Adapts([keras.Input((5,)), keras.layers.Dense(3), Bank()])
    private(model, noise_multiplier=2.0, delta=1e-3)
    train(model, data)
    model.writes = True
    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        getattr(model, ask)(*data()[: 2 if ask == "evaluate" else 1], verbose=0)


@pytest.mark.parametrize("train", [None, trained_by_fit, trained_by_a_loop])
def test_a_model_that_writes_nothing_when_it_is_asked_is_not_warned_of(train, case, data, tmp_path):
    model, _ = case("weight")
    if train is not None:
        train(model, data)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for _ in range(2):
            model.evaluate(*data(), verbose=0)
            model.predict(data()[0], verbose=0)
            model.save(tmp_path / "model.keras")


SAVES = {
    "save": lambda model, folder: model.save(folder / "model.keras"),
    "save_weights": lambda model, folder: model.save_weights(folder / "model.weights.h5"),
    "save_model": lambda model, folder: keras.saving.save_model(model, folder / "model.keras"),
    "pickle": lambda model, folder: pickle.dumps(model),
    "inside of another": lambda model, folder: keras.Sequential([model]).save(folder / "o.keras"),
}


@TRAINED
@pytest.mark.parametrize("save", SAVES)
def test_a_bank_that_was_filled_after_training_is_warned_of_when_it_is_saved(
    save, train, case, data, tmp_path
):
    model, variable = case("weight")
    train(model, data)
    variable.assign(data()[0].max(0)[:3])
    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        SAVES[save](model, tmp_path)
    assert warned_of(model, data) == 0


@pytest.mark.parametrize("graph", [False, True])
def test_what_a_loop_writes_that_is_no_weight_is_warned_of(graph, case, data, tmp_path):
    """Centres that the next step read: a record moved it by 5.9 clips."""
    model, _ = case("weight")
    centres = tf.Variable(tf.zeros([3]))
    means = data()[0].mean(0)[:3]
    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        trained_by_a_loop(model, data, centres, graph, between=lambda: centres.assign(means))
        model.save(tmp_path / "model.keras")


class Pull(keras.regularizers.Regularizer):
    """To centres that nobody trains."""

    def __init__(self, centres):
        self.centres = centres

    def __call__(self, weights):
        return keras.ops.sum(keras.ops.square(weights - self.centres))


class Shift(keras.constraints.Constraint):
    """By centres that nobody trains."""

    def __init__(self, centres):
        self.centres = centres

    def __call__(self, weights):
        return weights + self.centres


@pytest.mark.parametrize("train", ["fit", "loop", "loop in a graph"])
@pytest.mark.parametrize("reader", ["kernel_regularizer", "kernel_constraint"])
def test_what_only_an_update_reads_is_looked_at_after_the_first(
    reader, train, private, data, tmp_path
):
    """Written in the first `fit`, it was taken for what had been there: 12,243 clips for 4."""
    centres = tf.Variable(tf.zeros([3]))
    reads = {reader: (Pull if reader == "kernel_regularizer" else Shift)(centres)}
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3, **reads)])
    private(model, noise_multiplier=2.0, delta=1e-3)
    if train == "fit":
        assert warned_of(model, data, Fills(centres, data()[0].mean(0)[:3])) == 1
        return
    trained_by_a_loop(model, data, graph=train == "loop in a graph")
    centres.assign(data()[0].mean(0)[:3])
    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        model.save_weights(tmp_path / "model.weights.h5")


def with_a_record(model, folder):
    event = dp_accounting.GaussianDpEvent(8.0)
    tfdp.record_release(model, event, "a mean")


def within_a_block(model, folder):
    other = tfdp.make_private(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]))
    tfdp.record_release(other, dp_accounting.GaussianDpEvent(8.0), "a mean")
    with tfdp.post_processing(model, other):
        pass


def with_a_ledger_file(model, folder):
    path = folder / "ledger.jsonl"
    other = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])
    tfdp.make_private(other, ledger_path=path)
    tfdp.record_release(other, dp_accounting.GaussianDpEvent(8.0), "a mean")
    del other
    gc.collect()
    tfdp.make_private(model, ledger_path=path)


def unfrozen(model, folder):
    model.layers[-1].kept.trainable = True
    model.compile(tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=1.0), "mse")
    x = np.zeros((24, 5), "float32")
    model.fit(x, x[:, :3], batch_size=8, verbose=0)


@pytest.mark.parametrize("add", [with_a_record, within_a_block, with_a_ledger_file, unfrozen])
def test_a_bank_is_looked_at_before_anything_is_on_record_for_it(add, case, data, tmp_path):
    """What was on record hid the write: the exact maximum was in files, without a word."""
    model, variable = case("weight")
    trained_by_fit(model, data)
    variable.assign(data()[0].max(0)[:3])
    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        add(model, tmp_path)


def test_a_search_looks_at_what_each_trial_has_written(private, data):
    def train(hyperparameters):
        model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(3), Bank()])
        private(model, noise_multiplier=2.0, delta=1e-3)
        model.fit(*data(), batch_size=8, verbose=0)
        model.layers[-1].kept.assign(data()[0].max(0)[:3])
        return model, 0.0

    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        tfdp.PrivateSearch(mean_trials=1).run({"rate": [0.1]}, train)


def test_another_model_of_the_same_layers_looks_as_well(case, data, tmp_path):
    model, variable = case("weight")
    trained_by_fit(model, data)
    variable.assign(data()[0].max(0)[:3])
    other = keras.Model(model.inputs, model.outputs)
    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        tfdp.make_private(other)


def test_a_model_that_is_made_standard_is_looked_at_before(case, data):
    model, variable = case("weight")
    trained_by_fit(model, data)
    variable.assign(data()[0].max(0)[:3])
    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        tfdp.make_standard(model)


def test_a_model_that_is_made_private_again_is_remembered(case, data):
    model, variable = case("weight")
    trained_by_fit(model, data)
    tfdp.make_private(model, microbatch_size=4)
    variable.assign(np.ones(3))
    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        model.evaluate(*data(), verbose=0)


def test_a_bank_that_a_source_of_data_fills_is_warned_of(case, data):
    model, variable = case("weight")

    class Batches(keras.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return tuple(part[8 * index :][:8] for part in data())

        def on_epoch_end(self):
            variable.assign_add(np.ones(3))

    with pytest.warns(UserWarning, match=NEVER_TRAINED):
        model.fit(Batches(), epochs=2, sampling="shuffle", batch_size=8, verbose=0)


def test_random_layers_write_nothing(private, data):
    layers = [keras.layers.Dropout(0.3), keras.layers.GaussianNoise(0.1), keras.layers.Dense(3)]
    model = private(keras.Sequential([keras.Input((5,)), *layers]), noise_multiplier=2.0)
    nothing = keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: None)
    assert warned_of(model, data, nothing) == 0


@pytest.mark.parametrize("name", ["DPSGD", "RGP", "LSG", "SparseDPSGD", "DPPowerSGD"])
def test_centres_are_the_librarys_own(name, data, tmp_path):
    model = tfdp.make_private(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]))
    kind = getattr(tfdp, f"{name}Optimizer")
    optimizer = kind("adam", l2_norm_clip=1.0, noise_multiplier=2.0, centering=True)
    entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, entropy)
    assert warned_of(model, data) == 0
    trained_by_a_loop(model, data, graph=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", NEVER_TRAINED)
        model.save_weights(tmp_path / "model.weights.h5")


def test_who_writes_nothing_is_not_warned(case, data):
    model, variable = case("weight")
    nothing = Fills(variable, np.zeros(3))
    assert warned_of(model, data, nothing, keras.callbacks.EarlyStopping("loss")) == 0
    model, variable = case("loss")
    assert warned_of(model, data, Fills(variable, np.zeros(3))) == 0


def test_a_schedule_of_one_number_is_not_warned_of(case, data):
    model, variable = case("loss", size=1)
    assert warned_of(model, data, Fills(variable, [0.5])) == 0


def test_a_target_network_that_is_stated_is_not_warned_of(private, data):
    """An average of the model's weights, which its loss asks (BYOL)."""
    model, target = (keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]) for _ in range(2))

    class Loss(keras.losses.Loss):
        def call(self, y, logits):
            return keras.ops.mean(keras.ops.square(logits - target(y)), axis=-1)

    x = data()[0]
    private(model, noise_multiplier=2.0, delta=1e-3, loss=Loss())

    def average(*_):
        with tfdp.post_processing(target, model):
            target.set_weights(model.get_weights())

    def fit():
        callback = keras.callbacks.LambdaCallback(on_epoch_end=average)
        return warned_of(model, lambda: (x, x), callback)

    assert fit() == 0
    assert fit() == 0
    target.set_weights([value + x.mean() for value in target.get_weights()])
    assert fit() == 0  # it is told otherwise
    assert "unknown" in tfdp.privacy_statement(model, 1e-3)


def test_what_is_stated_to_be_computed_of_released_values_is_on_record(case, data):
    """So that no other model that reads the bank takes it for public either."""
    model, variable = case("weight")
    fill = Fills(variable, np.full(3, 0.5, "float32"), within=model)
    assert warned_of(model, data, fill) == 0
    spent = tfdp.privacy_spent(model, 1e-3)
    assert spent > 0.0
    other = keras.Sequential([keras.Input((3,)), model.layers[-1]])
    assert tfdp.privacy_spent(other, 1e-3) == spent
