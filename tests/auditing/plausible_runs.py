"""Runs of plausible users, as an attacker sees them: scores with and without one record.

Each had once leaked more than it reported: masks that followed from a seed and a row's place, an
encoder whose ledger stayed behind, passes over shuffled data that were left early.

python -m tests.auditing.plausible_runs 40
"""

import dataclasses
import sys

import keras
import numpy as np

import tf_lowrank_dp as tfdp
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.auditing import many_run_audit

WIDTH, ROWS, DELTA = 64, 256, 1e-5


@dataclasses.dataclass(frozen=True)
class Scores:
    """What an attacker saw, and what was reported.

    Attributes:
        with_record: a score of each run with the record.
        without_record: the same without it.
        threshold: between what is expected with the record and without, known beforehand.
        epsilon: reported for one run, at `DELTA`.
    """

    with_record: np.ndarray
    without_record: np.ndarray
    threshold: float
    epsilon: float

    def audit(self):
        """A lower bound on epsilon; the noise of these runs is Gaussian as a whole."""
        return many_run_audit(
            self.with_record,
            self.without_record,
            delta=DELTA,
            threshold=self.threshold,
            assume_gaussian=True,
        )


def output(y_true, y_pred):
    """A loss whose gradient does not depend on the weights."""
    del y_true
    return y_pred[:, 0]


def compiled(model, noise_multiplier):
    tfdp.make_private(model)
    optimizer = tfdp.DPSGDOptimizer(
        keras.optimizers.SGD(1.0), l2_norm_clip=1.0, noise_multiplier=noise_multiplier
    )
    model.compile(optimizer, output, jit_compile=False)
    return model


class OneStep:
    """One step on all rows, as often as wanted: the sum of clipped gradients with its noise."""

    def __init__(self, rows, noise_multiplier, *layers):
        self.rows = rows
        self.layers = layers
        dense = keras.layers.Dense(1, use_bias=False)
        inputs = [keras.Input((rows.shape[1],))]
        self.model = compiled(keras.Sequential([*inputs, *layers, dense]), noise_multiplier)
        self.first = self.model.get_weights()
        self.seeds = [layer.seed_generator.state.numpy() for layer in layers]

    def __call__(self):
        for layer, seed in zip(self.layers, self.seeds, strict=True):
            layer.seed_generator.state.assign(seed)
        self.model.set_weights(self.first)
        size = len(self.rows)
        self.model.fit(self.rows, np.zeros((size, 1)), batch_size=size, verbose=0)
        return size * (self.first[0] - self.model.get_weights()[0]).ravel()


def with_dropout(runs, noise_multiplier=4.0):
    """Dropout with a seed that the attacker knows; one record more is the first of the data."""
    rows = np.random.default_rng(0).normal(size=(ROWS + 1, WIDTH)).astype("float32")
    neighbours = [rows, rows[1:]]

    def step(data, noise):
        return OneStep(data, noise, keras.layers.Dropout(0.5, seed=3))

    expected = [step(data, 0.0)() for data in neighbours]
    apart = (expected[0] - expected[1]) / np.linalg.norm(expected[0] - expected[1])
    scores, epsilon = [], 0.0
    for data in neighbours:
        noisy = step(data, noise_multiplier)
        found = [noisy()]
        epsilon = tfdp.privacy_spent(noisy.model, DELTA)
        found += [noisy() for _ in range(runs - 1)]
        scores.append(np.array(found) @ apart)
    return Scores(*scores, float((expected[0] + expected[1]) @ apart) / 2, epsilon)


def with_a_shared_encoder(runs):
    """An encoder trained with little noise, then a head on it with much: what the head reports."""
    rows = np.eye(WIDTH, dtype="float32")
    scores, epsilon = [], 0.0
    for data in (rows, rows[1:]):
        found = []
        encoder = keras.layers.Dense(1, use_bias=False)
        model = compiled(keras.Sequential([keras.Input((WIDTH,)), encoder]), 0.5)
        first, size = model.get_weights(), len(data)
        for run in range(runs):
            model.set_weights(first)
            model.fit(data, np.zeros((size, 1)), batch_size=size, verbose=0)
            found.append(size * (first[0] - model.get_weights()[0])[0, 0])
            if run == 0:
                head = keras.Sequential([keras.Input((WIDTH,)), encoder, keras.layers.Dense(1)])
                compiled(head, 16.0).fit(data, np.zeros((size, 1)), batch_size=size, verbose=0)
                epsilon = tfdp.privacy_spent(head, DELTA)
                model.compile(model.optimizer, output, jit_compile=False)
        scores.append(np.array(found))
    return Scores(*scores, 0.5, epsilon)


def with_passes_left_early(runs, noise_multiplier=2.0, passes=20):
    """Batches of one record, in an order that the user draws, of which the first one is taken."""
    scores, epsilon = [], 0.0
    for sign in (1.0, -1.0):
        model = compiled(
            keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, use_bias=False)]),
            noise_multiplier,
        )
        found = []
        for run in range(runs):
            sampling = Sampling.shuffle(batch_size=1, steps_per_pass=4)
            trainer = tfdp.PrivateTrainer(model, sampling, steps=4 * passes)
            before = model.get_weights()[0].item()
            for _ in range(passes):
                leave_early(trainer, model, sign)
            found.append(before - model.get_weights()[0].item())
            if run == 0:
                epsilon = tfdp.privacy_spent(model, DELTA)
        scores.append(np.array(found))
    return Scores(*scores, 0.0, epsilon)


def leave_early(trainer, model, sign):
    """One step of a pass of four."""

    def forward(batch):
        return model(batch["x"], training=True)[:, 0], ()

    batches = [
        {"x": np.full((1, 1), sign, np.float32), "presence": np.ones(1, np.float32)}
        for _ in range(4)
    ]
    for batch in trainer.one_pass(batches):
        trainer.apply(trainer.gradients(forward, batch))
        break


RUNS = (with_dropout, with_a_shared_encoder, with_passes_left_early)

if __name__ == "__main__":
    for run in RUNS:
        scores = run(int(sys.argv[1]))
        print(f"{run.__name__}: at least {scores.audit().epsilon:.2f}, stated {scores.epsilon:.2f}")
