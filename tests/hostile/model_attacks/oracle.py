"""Laws that honest models keep and hostile ones break, in plain Keras and TensorFlow.

Each law is a function of a case.  It returns by how much the law is broken, relative to the size of
what is compared: rounding for an honest model.  Nothing here comes from the package that is tested.
"""

import importlib
import pathlib

import keras
import numpy as np
import tensorflow as tf

from tests.hostile.model_attacks.case import ModelCase

ROWS, ROW, DRAWS, SEEDS = 12, 5, 400, 20


def all_cases() -> list[ModelCase]:
    """Those of all lists `CASES` in files `hostile_*.py` and `honest_*.py` beside this one."""
    found = []
    for pattern in ("hostile_*.py", "honest_*.py"):
        for path in sorted(pathlib.Path(__file__).parent.glob(pattern)):
            found += importlib.import_module(f"tests.hostile.model_attacks.{path.stem}").CASES
    return found


class Trial:
    """A new model of a case in the state that the case demonstrates, and its loss."""

    def __init__(self, case: ModelCase):
        keras.utils.set_random_seed(0)
        self.model, self.loss = case.build(), case.make_loss()
        case.demonstrate(self.model)
        if not callable(self.loss) or isinstance(self.loss, str):
            self.loss = keras.losses.get(self.loss)
        layers = self.model._flatten_layers()
        self.seeds = [g.state for layer in layers for g in layer._seed_generators]
        self._at_first = [np.array(seed) for seed in self.seeds]

    def set_seeds(self, draw: int = 0):
        for seed, value in zip(self.seeds, self._at_first, strict=True):
            seed.assign(value + np.array([draw, 0], value.dtype))

    def losses(self, batch, training=True):
        """One loss for each example, float32 `(b,)`: its mean over positions and outputs."""
        x, y = batch
        y_pred = self.model(tf.constant(x), training=training)
        function = self.loss.call if isinstance(self.loss, keras.losses.Loss) else self.loss
        parts = [function(tf.constant(y), y_pred), *self.model.losses]
        axes = [list(range(1, part.shape.rank)) for part in parts]
        return sum(tf.reduce_mean(part, axis) for part, axis in zip(parts, axes, strict=True))

    def gradient(self, batch, training=True):
        """Of the summed losses with respect to all trained weights, one vector."""
        variables = [v.value for v in self.model.trainable_variables]
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(self.losses(batch, training))
        found = tape.gradient(total, variables, unconnected_gradients="zero")
        return np.concatenate([tf.reshape(tf.convert_to_tensor(g), -1) for g in found])


def data_of(case: ModelCase, seed: int, rows: int = ROWS):
    return case.data(np.random.default_rng(seed), rows)


def others(case: ModelCase) -> float:
    """Other examples move neither an example's loss nor what it adds to the gradient.

    That of a hostile model may be hidden by chance, so that it has three draws.
    """
    trial = Trial(case)
    return max(_moved_by_others(case, trial, d) for d in range(3 if case.kind == "hostile" else 1))


def _moved_by_others(case, trial, draw):
    here, there = data_of(case, 2 * draw + 1), data_of(case, 2 * draw + 2)

    def at_seeds(function, batch):
        trial.set_seeds(draw)
        return np.array(function(batch))

    p, q, r, s = here, _with_row(there, here), _with_row(here, there), there
    rows = [at_seeds(trial.losses, batch)[ROW] for batch in (p, q)]
    g = [at_seeds(trial.gradient, batch) for batch in (p, q, r, s)]
    return max(_difference(*rows), float(np.linalg.norm(g[0] - g[1] - g[2] + g[3])) / _scale(*g))


def others_in_some_draw(case: ModelCase) -> float:
    """As `others`, for losses, under many data and random numbers."""
    trial, found = Trial(case), []
    for draw in range(SEEDS):
        here, there = data_of(case, 2 * draw + 1), data_of(case, 2 * draw + 2)
        rows = []
        for batch in (here, _with_row(there, here)):
            trial.set_seeds(draw)
            rows.append(np.array(trial.losses(batch))[ROW])
        found.append(_difference(*rows))
    return max(found)


def size(case: ModelCase) -> float:
    """Losses and gradients of a batch are those of its examples one at a time.

    Random numbers are off: there are others for another number of rows.
    """
    trial, training = Trial(case), not case.random
    whole = data_of(case, 1)
    alone = [tuple(part[n : n + 1] for part in whole) for n in range(ROWS)]
    one_by_one = np.concatenate([trial.losses(batch, training) for batch in alone])
    gradients = sum(trial.gradient(batch, training) for batch in alone)
    return max(
        _difference(np.array(trial.losses(whole, training)), one_by_one),
        _difference(trial.gradient(whole, training), gradients),
    )


def position(case: ModelCase) -> float:
    """Losses follow the examples when these are in another order."""
    trial, training, batch = Trial(case), not case.random, data_of(case, 1)
    turned = tuple(part[::-1].copy() for part in batch)
    losses = [np.array(trial.losses(part, training)) for part in (batch, turned)]
    return _difference(losses[0], losses[1][::-1])


def later_batch(case: ModelCase) -> float:
    """A record moves no later batch of which it is no part."""
    here, there = data_of(case, 1), data_of(case, 2)
    one_other = tuple(np.concatenate([b[:1], a[1:]]) for a, b in zip(here, there, strict=True))
    found = []
    for batch in (here, one_other):
        trial = Trial(case)
        trial.losses(batch)
        found.append(np.array(trial.losses(data_of(case, 3))))
    return _difference(*found)


def neighbours(case: ModelCase) -> float:
    """Random numbers tie two rows to each other by the same law, wherever they stand."""
    trial = Trial(case)
    x, y = data_of(case, 1, 1)
    batch = np.repeat(x, 4, 0), np.repeat(y, 4, 0) + 100.0  # losses are nearly linear in outputs
    draw = tf.function(lambda: trial.losses(batch), autograph=False)
    losses = np.stack([draw() for _ in range(DRAWS)])
    if np.any(np.std(losses, 0) == 0.0):
        return 0.0
    correlations = np.corrcoef(losses.T)
    # Of 400 draws, the difference of two correlations has a deviation of 0.07 at most.
    return max(0.0, abs(correlations[0, 1] - correlations[0, 3]) - 0.3)


def weights_outside(case: ModelCase) -> float:
    """Weights act on the loss inside of their layers' calls only."""
    whole = Trial(case).gradient(data_of(case, 1))
    trial = Trial(case)
    for layer in trial.model._flatten_layers():
        if layer._trainable_variables:
            _without_gradient(layer)
    return float(np.linalg.norm(trial.gradient(data_of(case, 1)))) / _scale(whole)


LAWS = {
    "others": others,
    "others in some draw": others_in_some_draw,
    "size": size,
    "position": position,
    "later batch": later_batch,
    "neighbours": neighbours,
    "weights outside": weights_outside,
}


def _without_gradient(layer) -> None:
    """The layer's calls see its weights as constants."""
    call, own = layer.call, [v for v in layer._trainable_variables if v.trainable]

    def constant(*args, **kwargs):
        mapping = [(v, tf.stop_gradient(tf.convert_to_tensor(v.value))) for v in own]
        with keras.StatelessScope(state_mapping=mapping):
            return call(*args, **kwargs)

    layer.call = constant


def _with_row(batch, other):
    """`batch` with one row of `other`."""
    rows = [part.copy() for part in batch]
    for part, theirs in zip(rows, other, strict=True):
        part[ROW] = theirs[ROW]
    return tuple(rows)


def _difference(a, b) -> float:
    return float(np.linalg.norm(a - b)) / _scale(a, b)


def _scale(*arrays) -> float:
    return max(1e-6, *(float(np.linalg.norm(array)) for array in arrays))
