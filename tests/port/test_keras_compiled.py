"""Contracts of the port to what `compile` leaves in a model, on the Keras that is installed."""

import gc
import json
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp._keras.compiled import (
    called_by_fit,
    compiled_loss,
    compiled_metrics,
    epoch_files,
    first_epoch,
    loss_object,
    loss_of_step,
    loss_tracker,
    losses_and_weights,
    models_compiled_with,
    name_of_loss,
    observe_losses,
    record_loss_scaling,
    record_optimizer,
    same_ranks,
    takes_training,
    trained_by,
    with_losses,
    writes_hdf5,
)


def test_the_models_of_an_optimizer_are_those_compiled_with_it():
    optimizer = keras.optimizers.SGD()
    scaled = keras.optimizers.LossScaleOptimizer(optimizer)
    models = [keras.Sequential([keras.layers.Dense(1)]) for _ in range(3)]
    for model, own in zip(models, (optimizer, scaled, keras.optimizers.SGD()), strict=True):
        model.compile(own, "mse")
    found = models_compiled_with(optimizer)
    assert {id(model) for model in found} == {id(model) for model in models[:2]}


def test_looking_for_the_models_of_an_optimizer_leaves_tuples_of_other_threads_alone():
    """A walk over all that lives held tuples that were being made: SystemError in their thread."""
    optimizer, failed, stop = keras.optimizers.SGD(), [], threading.Event()

    def make_tuples():
        while not stop.is_set():
            try:
                tuple(number for number in range(500))
            except SystemError as error:
                failed.append(error)

    threads = [threading.Thread(target=make_tuples) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        models_compiled_with(optimizer)
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed


def test_looking_for_the_models_of_an_optimizer_outlives_what_eager_tensors_make_meanwhile():
    """Each makes its dictionary when it is walked: a collection there ended the process."""
    optimizer = keras.optimizers.SGD()
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    threshold = gc.get_threshold()
    gc.collect()
    tensors = [tf.constant(float(number)) for number in range(500)]
    gc.set_threshold(gc.get_count()[0] + 100, *threshold[1:])
    try:
        assert models_compiled_with(optimizer) == [model]
    finally:
        gc.set_threshold(*threshold)
    assert gc.isenabled() and len(tensors) == 500


def two_outputs(**arguments):
    x = keras.Input((2,))
    outputs = {name: keras.layers.Dense(1, name=name)(x) for name in ("a", "b")}
    model = keras.Model(x, outputs)
    model.compile(
        "sgd",
        loss={"a": "mse", "b": "mae"},
        loss_weights={"a": 2.0, "b": 3.0},
        metrics={"b": ["mae"]},
        weighted_metrics={"a": ["mse"]},
        **arguments,
    )
    return model


ZEROS = {name: tf.zeros([2, 1]) for name in ("a", "b")}
ONES = {name: tf.fill([2, 1], value) for name, value in (("a", 1.0), ("b", 5.0))}


class Observer:
    variables = ()

    def update_state(self, value, sample_weight=None):
        self.value = float(value)


class WithTraining(keras.Model):
    def call(self, x, training=False):
        return x


class WithoutTraining(keras.Model):
    def call(self, x):
        return x


def test_takes_training_tells_whether_call_has_the_argument():
    assert takes_training(WithTraining()) and not takes_training(WithoutTraining())
    assert takes_training(keras.Sequential([keras.Input((1,)), keras.layers.Dropout(0.5)]))


def test_compiled_loss_is_the_weighted_sum_and_another_object_after_compile():
    model = two_outputs()
    loss = compiled_loss(model)
    assert compiled_loss(model) is loss
    assert float(loss(ZEROS, ONES)) == 2.0 * 1.0 + 3.0 * 5.0
    model.compile("sgd", "mse")
    assert compiled_loss(model) is not loss


def test_a_model_without_losses_or_metrics_has_none():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd")
    assert compiled_loss(model) is None and compiled_metrics(model) is None


def test_losses_and_weights_are_what_compile_was_given():
    given = {"a": "mse", "b": "mae"}, {"a": 2.0, "b": 3.0}
    assert losses_and_weights(compiled_loss(two_outputs())) == given


def test_with_losses_keeps_the_weights_and_leaves_the_original():
    model = two_outputs()
    compiled_loss(model)(ZEROS, ONES)
    other = with_losses(compiled_loss(model), {"a": "mae", "b": "mse"})
    assert not other.built
    assert float(other(ZEROS, ONES)) == 2.0 * 1.0 + 3.0 * 25.0
    assert float(compiled_loss(model)(ZEROS, ONES)) == 17.0


def test_observers_see_the_unweighted_loss_of_each_output():
    loss = compiled_loss(two_outputs())
    loss(ZEROS, ONES)
    observers = observe_losses(loss, Observer)
    loss(ZEROS, ONES)
    assert [observer.value for observer in observers] == [1.0, 5.0]


def test_the_loss_tracker_is_the_metric_that_fit_reports_as_loss():
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    loss_tracker(model).update_state([1.0, 5.0])
    assert float(model.get_metrics_result()["loss"]) == 3.0


@pytest.mark.parametrize("loss", ["mse", keras.losses.mean_squared_error, keras.losses.Huber()])
def test_a_loss_object_gives_what_the_compiled_loss_gives(loss):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", loss)
    y, y_pred = np.array([0.0, 1.0], "float32"), np.array([[0.5], [3.0]], "float32")
    expected = compiled_loss(model)(y, y_pred)
    assert float(loss_object(loss, y, y_pred)(y, y_pred)) == pytest.approx(float(expected))


def test_crossentropy_is_chosen_by_shapes():
    y, y_pred = np.zeros(3), np.zeros((3, 4))
    assert loss_object("crossentropy", y, y_pred).fn is keras.losses.sparse_categorical_crossentropy
    assert loss_object("ce", y, y_pred[:, :1]).fn is keras.losses.binary_crossentropy


def test_losses_are_named_as_given():
    assert name_of_loss("mse") == "mse"
    assert name_of_loss(keras.losses.Huber(name="mine")) == "mine"
    assert name_of_loss(keras.losses.hinge) == "hinge"


def test_targets_get_the_rank_of_outputs_where_an_axis_of_length_1_is_missing():
    shapes = [tuple(t.shape) for t in same_ranks(tf.zeros([5]), tf.zeros([5, 1]))]
    assert shapes == [(5, 1), (5, 1)]
    shapes = [tuple(t.shape) for t in same_ranks(tf.zeros([5, 3]), tf.zeros([5, 3, 1]))]
    assert shapes == [(5, 3), (5, 3)]
    shapes = [tuple(t.shape) for t in same_ranks(tf.zeros([5]), tf.zeros([5, 4]))]
    assert shapes == [(5,), (5, 4)]


@pytest.mark.parametrize("takes_training", [True, False])
def test_the_loss_of_a_step_is_that_of_compute_loss(takes_training):
    class Own(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
            return keras.ops.sum(x + y + y_pred)

    class Older(keras.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return keras.ops.sum(x + y + y_pred)

    model = (Own if takes_training else Older)([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd")
    assert float(loss_of_step(model, tf.ones([2, 1]), tf.ones([2, 1]), tf.ones([2, 1]), None)) == 6


def test_called_by_fit_is_true_where_fit_validates_only():
    class Noting(keras.Sequential):
        def evaluate(self, *args, **kwargs):
            found.append(called_by_fit(kwargs))
            return super().evaluate(*args, **kwargs)

    found = []
    model = Noting([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    data = np.zeros([2, 1]), np.zeros([2, 1])
    model.fit(*data, validation_data=data, verbose=0)
    model.evaluate(*data, verbose=0)
    assert found == [True, False]


def test_an_optimizer_has_the_variables_that_it_was_built_with():
    optimizer, variables = keras.optimizers.Adam(), [keras.Variable([1.0]), keras.Variable([2.0])]
    assert trained_by(optimizer) == []
    optimizer.build(variables)
    assert [id(variable) for variable in trained_by(optimizer)] == [*map(id, variables)]


def test_record_optimizer_changes_what_is_saved():
    model = two_outputs()
    assert not record_optimizer(keras.Sequential([keras.layers.Dense(1)]), keras.optimizers.SGD())
    assert record_optimizer(model, keras.optimizers.Adam(0.25))
    saved = model.get_compile_config()["optimizer"]
    assert saved["class_name"] == "Adam" and saved["config"]["learning_rate"] == 0.25


def test_record_loss_scaling_changes_what_is_loaded(tmp_path):
    def loaded():
        model.save(tmp_path / "model.keras")
        return keras.models.load_model(tmp_path / "model.keras").optimizer

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    record_loss_scaling(model, False)  # which is not compiled
    model.compile("sgd", "mse")
    record_loss_scaling(model, False)
    keras.config.set_dtype_policy("mixed_float16")
    try:
        assert isinstance(loaded(), keras.optimizers.SGD)
        record_loss_scaling(model, True)
        assert isinstance(loaded(), keras.optimizers.LossScaleOptimizer)
    finally:
        keras.config.set_dtype_policy("float32")
    assert "auto_scale_loss" not in model.get_compile_config()


def test_record_loss_scaling_leaves_a_compile_without_the_argument_alone():
    class Own(keras.Sequential):
        def compile(self, optimizer, loss):
            super().compile(optimizer, loss)

    model = Own([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    record_loss_scaling(model, False)
    assert "auto_scale_loss" not in model.get_compile_config()


def test_the_first_epoch_is_that_of_a_restored_backup_or_the_one_given(tmp_path):
    class Noting(keras.callbacks.Callback):
        def on_train_begin(self, logs=None):
            found.append(first_epoch(self.model, 1))

    class Stop(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            raise KeyboardInterrupt

    found = []
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    callbacks = [backup, Noting(), Stop()]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            model.fit(
                *[np.zeros([2, 1])] * 2, initial_epoch=1, epochs=9, verbose=0, callbacks=callbacks
            )
    assert found == [1, 2]


def test_epoch_files_hold_the_number_of_epochs(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    backup = keras.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)
    model.fit(np.zeros([2, 1]), np.zeros([2, 1]), epochs=2, verbose=0, callbacks=[backup])
    current, before = epoch_files(backup)
    with open(current) as file:
        assert json.load(file)["epoch"] == 2
    assert before != current and before.startswith(str(tmp_path))


@pytest.mark.parametrize("function", [compiled_loss, loss_tracker, takes_training])
def test_a_missing_name_is_an_error_that_names_the_function_and_the_version(function):
    with pytest.raises(RuntimeError) as error:
        function(object())
    assert f"_keras.compiled.{function.__name__}" in str(error.value)
    assert f"Received: Keras {keras.__version__}" in str(error.value)


class Asked(keras.optimizers.SGD):
    """Keeps whether its config was asked for a file of HDF5."""

    def get_config(self):
        self.asked_for_hdf5 = writes_hdf5()
        return super().get_config()


def test_writes_hdf5_tells_what_file_a_config_is_for(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(Asked(0.1), loss="mse")
    model.save(tmp_path / "model.keras")
    assert model.optimizer.asked_for_hdf5 is False
    model.save(tmp_path / "model.h5")
    assert model.optimizer.asked_for_hdf5 is True
    assert not writes_hdf5()
