"""Callbacks that choose by private data are warned of."""

import warnings

import keras
import numpy as np
import pytest

callbacks = keras.callbacks
PRIVATE = {
    "EarlyStopping of 'loss'": lambda folder: callbacks.EarlyStopping("loss", patience=9),
    "ReduceLROnPlateau of 'loss'": lambda folder: callbacks.ReduceLROnPlateau("loss"),
    "ModelCheckpoint of 'loss'": lambda folder: callbacks.ModelCheckpoint(
        folder / "best.keras", monitor="loss", save_best_only=True
    ),
    "TerminateOnNaN of 'loss'": lambda folder: callbacks.TerminateOnNaN(),
}
PUBLIC = {
    "validation data": lambda folder: callbacks.EarlyStopping("val_loss", patience=9),
    "all weights kept": lambda folder: callbacks.ModelCheckpoint(folder / "w.keras"),
    "the rate": lambda folder: callbacks.EarlyStopping("learning_rate", mode="min", patience=9),
    "nothing": lambda folder: callbacks.LambdaCallback(),
}


def told(model, data, callback, **given):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model.fit(*data, batch_size=8, callbacks=[callback], verbose=0, **given)
    return [str(each.message) for each in found if "choose by public data" in str(each.message)]


def dense(private):
    return private(keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)]))


@pytest.mark.parametrize("name", PRIVATE)
def test_choices_by_private_losses_are_warned_of(private, data, name, tmp_path):
    [message] = told(dense(private), data(), PRIVATE[name](tmp_path))
    assert name in message


@pytest.mark.parametrize("name", PUBLIC)
def test_choices_by_public_data_are_not(private, data, name, tmp_path):
    model, validation = dense(private), data()
    assert not told(model, data(), PUBLIC[name](tmp_path), validation_data=validation)


def test_a_share_of_the_private_examples_is_no_public_validation_data(private, data):
    stop = callbacks.EarlyStopping("val_loss", patience=9)
    [message] = told(dense(private), data(), stop, validation_split=0.25)
    assert "EarlyStopping of 'val_loss'" in message


def test_the_training_data_are_no_public_validation_data(private, data):
    trained, stop = data(), callbacks.EarlyStopping("val_loss", patience=9)
    [message] = told(dense(private), trained, stop, validation_data=trained)
    assert "EarlyStopping of 'val_loss'" in message


def test_one_record_ends_a_training_with_terminate_on_nan(private, data):
    """Why it is warned of: the number of steps is public."""
    steps = []
    for bad in (0.0, np.nan):
        x, y = data()
        x[0] += bad
        model = dense(private)
        told(model, (x, y), callbacks.TerminateOnNaN(), epochs=8)
        steps.append(int(model.optimizer.iterations))
    assert steps[1] < steps[0]
