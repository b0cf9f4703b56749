"""What two workers do beside training: pickles what was seen, and ends by a kill.

`python -m tf_lowrank_dp.launch -n 2 tests/workers/behaviours.py FOLDER`
"""

import os
import pickle
import signal
import sys
import time
import warnings
from pathlib import Path

import dp_accounting
import keras
import numpy as np
import tensorflow as tf

import tf_lowrank_dp as tfdp
from tests.workers import cases
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.sampling import PoissonSampler
from tf_lowrank_dp.sampling.parts import part

DEVIATION = 3.0


def dpsgd(clip=1.0, **settings):
    settings = {"noise_multiplier": 1.0, "delta": 1e-3, **settings}
    return tfdp.DPSGDOptimizer(keras.optimizers.SGD(0.1), l2_norm_clip=clip, **settings)


def private(workers, clip=1.0, units=6, **settings):
    keras.utils.set_random_seed(1)
    hidden = keras.layers.Dense(units, activation="tanh", name="hidden")
    out = keras.layers.Dense(3, name="out")
    model = keras.Sequential([keras.Input((8,)), hidden, out])
    tfdp.make_private(model, workers=workers, **settings)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(dpsgd(clip), loss=loss, metrics=["accuracy"], jit_compile=False)
    return model


def fit(model, callbacks=(), steps=6, epochs=1, data=None, batch_size=12, **arguments):
    x, y = cases.rows() if data is None else data
    arguments |= {"batch_size": batch_size, "steps_per_epoch": steps, "epochs": epochs}
    return model.fit(x, y, verbose=0, callbacks=list(callbacks), **arguments)


def disagreements(workers):
    """Error, steps and how far weights moved, where worker 1 has something else."""
    other = workers.index == 1
    x, y = cases.rows()
    order = np.arange(len(x))
    order[[10, 90]] = order[[90, 10]]
    tries = {
        "clip": ({"clip": 2.0}, {}),
        "order of the rows": ({}, {"data": (x[order], y[order])}),
        "model": ({"units": 7}, {}),
        "steps": ({}, {"steps": 7}),
        "versions": ({}, {}),
        "sharded": ({}, {"sharded": True}),
    }
    found, version = {}, keras.__version__
    for name, (of_model, of_fit) in tries.items():
        keras.__version__ = "0.0" if name == "versions" and other else version
        model = private(workers, **(of_model if other else {}))
        before = [v.numpy() for v in model.weights]
        try:
            fit(model, **(of_fit if other else {}))
            error = None
        except ValueError as raised:
            error = raised
        after = [v.numpy() for v in model.weights]
        moved = max(np.abs(a - b).max() for a, b in zip(after, before, strict=True))
        found[name] = str(error), tfdp.privacy_spent(model), moved
    keras.__version__ = version
    return found


class AtBatch(keras.callbacks.Callback):
    def __init__(self, batch, action):
        super().__init__()
        self.batch, self.action = batch, action

    def on_train_batch_end(self, batch, logs=None):
        if batch == self.batch:
            self.action(self.model)


def stop(model):
    model.stop_training = True


class NanLoss(keras.callbacks.Callback):
    """In front of TerminateOnNaN, on one worker."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 2:
            logs["loss"] = float("nan")


def stopping(workers):
    """Steps of each way to stop that worker 1 alone has."""
    callbacks = {
        "a callback": [AtBatch(3, stop)],
        "TerminateOnNaN": [NanLoss(), keras.callbacks.TerminateOnNaN()],
        "EarlyStopping": [keras.callbacks.EarlyStopping("loss", min_delta=9.0)],
        "PrivacyBudget": [tfdp.PrivacyBudget(epsilon=2.6)],
    }
    found = {}
    for name, own in callbacks.items():
        model = private(workers)
        history = fit(model, own if workers.index == 1 else (), epochs=4)
        weights = np.concatenate([v.numpy().ravel() for v in model.trainable_variables])
        found[name] = model.optimizer.ledger.num_steps, len(history.epoch), weights, history.history
    return found


def releases(workers):
    """Sums with noise, where it is added once, by nobody, and twice."""
    zeros, ones = [[tf.zeros(50_000)]], [[tf.fill([3], workers.index + 1.0)]]
    mechanism = GaussianMechanism(DEVIATION, 1.0)
    found = {"noise": mechanism.release(zeros, NoiseGenerator(), workers)[0][0].numpy()}
    found["sum"] = workers.added(ones, sources=int(workers.is_chief))[0][0].numpy()
    for name, sources in {"nobody": 0, "both": 1}.items():
        try:
            workers.added(ones, sources)
        except tf.errors.InvalidArgumentError as error:
            found[name] = str(error)
    return found


def two_runs(workers, folder):
    """Two models of different shapes, and another fit of the first; files; logs."""
    first, second = private(workers), private(workers, units=5)
    counts = []
    for model in (first, second, first):
        history = fit(model, epochs=2).history
        counts.append(model.optimizer.ledger.num_steps)
    other = dpsgd(clip=0.5)
    first.compile(other, loss=first.loss, jit_compile=False)  # another run of the same variables
    fit(first)
    fit(first, batch_size=24)
    first.save(folder / f"model{workers.index}.keras")
    first.save_weights(folder / f"weights{workers.index}.weights.h5")
    epsilon = tfdp.privacy_spent(first)
    return {"steps": [*counts, other.ledger.num_steps], "epsilon": epsilon, "logs": history}


def masks(workers):
    """By how much weights behind Dropout move where each worker has one row, all seeded alike."""
    keras.utils.set_random_seed(1)
    head = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input((400,)), keras.layers.Dropout(0.5), head])
    tfdp.make_private(model, workers=workers)
    optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1e4, noise_multiplier=0.0, seed=3)
    model.compile(optimizer, "mse", jit_compile=False)
    fit(model, steps=1, data=(np.ones((2, 400), "float32"), np.ones((2, 1))), batch_size=2)
    return head.kernel.numpy().ravel()


def draws(workers):
    """The rows that this worker draws in 400 steps, by `as_dataset` as in fit."""
    rows = np.arange(30, dtype="float32")[:, None]
    seen = []

    sampler = PoissonSampler(rows, batch_size=6, steps=400)
    sampler = part(sampler, workers.index, workers.count)
    for batch in sampler.as_dataset().as_numpy_iterator():
        seen.append(batch["x"][batch["presence"] > 0, 0].astype(int))
    return seen


def sites(workers):
    """Epsilon of a student of which each worker asks another private model, where it does so."""
    found = {}
    for place in ("loss", "constraint", "loss, within a target"):
        teacher = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3)])
        event = dp_accounting.GaussianDpEvent(6.0 + workers.index)
        with warnings.catch_warnings(action="ignore"):  # its file holds no ledger
            tfdp.record_release(teacher, event, f"of site {workers.index}")
        layer = teacher.layers[0]

        def loss(y_true, y_pred, layer=layer):
            return keras.losses.sparse_categorical_crossentropy(y_true, y_pred + layer(y_pred))

        model = private(workers)
        target = {"epsilon": 2.0, "noise_multiplier": None} if "target" in place else {}
        asks = loss if "loss" in place else model.loss
        model.compile(dpsgd(**target), asks, jit_compile=False)
        if place == "constraint":
            model.layers[1].kernel.constraint = lambda w, k=layer.kernel: w + 0 * k[0, 0]
        fit(model, steps=3)
        found[place] = tfdp.privacy_spent(model)
    return found


def killed(workers):
    """Worker 1 is killed in mid-training."""
    action = lambda model: os.kill(os.getpid(), signal.SIGKILL)  # noqa: E731
    callbacks = [AtBatch(4, action)] if workers.index == 1 else []
    start = time.monotonic()
    try:
        fit(private(workers), callbacks, steps=5_000)
    finally:
        print(f"ended after {time.monotonic() - start:.1f} s", flush=True)


def main(folder):
    workers = tfdp.join_workers()
    folder = Path(folder)
    found = {
        "disagreements": disagreements(workers),
        "stopping": stopping(workers),
        "releases": releases(workers),
        "two runs": two_runs(workers, folder),
        "draws": draws(workers),
        "masks": masks(workers),
        "sites": sites(workers),
    }
    (folder / f"{workers.index}.pickle").write_bytes(pickle.dumps(found))
    killed(workers)


if __name__ == "__main__":
    main(sys.argv[1])
