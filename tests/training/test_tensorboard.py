"""Epsilon is where users of Keras' tools look for it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import tf_lowrank_dp as tfdp

X, Y = np.ones((32, 3), "float32"), np.ones((32, 2), "float32")


def private_model(**privacy):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, accountant="rdp", **privacy)
    model.compile(optimizer, "mse")
    return model


def scalars(folder, name):
    """Values of a scalar in TensorBoard's files, by step."""
    files = sorted(str(path) for path in folder.rglob("events*"))
    found = {}
    for record in tf.data.TFRecordDataset(files):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            if value.tag == name:
                found[event.step] = float(tf.make_ndarray(value.tensor))
    return found


def test_epsilon_is_among_the_scalars_of_tensorboard(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `test` installs tensorboard")
    model = private_model(noise_multiplier=2.0, delta=1e-3)
    spent = []
    after = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: spent.append(tfdp.privacy_spent(model))
    )
    callbacks = [tfdp.PrivacyBudget(), keras.callbacks.TensorBoard(tmp_path), after]
    model.fit(X, Y, batch_size=8, epochs=3, verbose=0, callbacks=callbacks)
    found = scalars(tmp_path, "epoch_epsilon")
    assert list(found) == [0, 1, 2]
    assert list(found.values()) == pytest.approx(spent, rel=1e-6)  # float32


def test_a_search_trains_private_models(tmp_path):
    """Each trial has a model and a budget of its own; the search is not accounted for."""
    tuner_of = pytest.importorskip("keras_tuner", reason="the extra `test` installs keras-tuner")
    built = []

    def build(choices):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
        tfdp.make_private(model)
        rate = choices.Choice("learning_rate", [0.1, 0.5])
        clip = choices.Choice("l2_norm_clip", [0.5, 1.0])
        inner = keras.optimizers.SGD(rate)
        optimizer = tfdp.DPSGDOptimizer(
            inner, l2_norm_clip=clip, epsilon=2.0, delta=1e-3, accountant="rdp"
        )
        model.compile(optimizer, "mse", metrics=["mse"])
        built.append(model)
        return model

    tuner = tuner_of.RandomSearch(
        build, objective="val_loss", max_trials=2, directory=tmp_path, project_name="search"
    )
    tuner.search(X, Y, validation_data=(X, Y), batch_size=8, epochs=1, verbose=0)
    trained = [model for model in built if tfdp.privacy_spent(model)]
    assert len(trained) == 2
    assert all(1.5 < tfdp.privacy_spent(model) <= 2.0 for model in trained)
    best = tuner.get_best_models(1)[0]
    assert 1.5 < tfdp.privacy_spent(best) <= 2.0
    assert "choice of hyperparameters" in " ".join(tfdp.privacy_statement(best).split())
