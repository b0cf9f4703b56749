"""Whether examples of a model depend on each other, found by plain Keras and a gradient tape."""

import random as python_random

import keras
import numpy as np
import tensorflow as tf
from keras.src.random.seed_generator import global_seed_generator

ROWS = 16
ROUNDING, MOVED = 2e-4, 2e-3
TRIES = 10


class Oracle:
    """A built model of a case, called as in training, with the random numbers held fixed."""

    def __init__(self, case, seed=0):
        keras.utils.set_random_seed(seed)
        self.case, self.model = case, case.build()
        self.generator = np.random.default_rng(seed)
        layers = self.model._flatten_layers()
        states = [g.state for layer in layers for g in layer._seed_generators]
        self.seeds = [*states, global_seed_generator().state]
        self.loss = case.loss
        if isinstance(case.loss, str):
            self.loss = keras.losses.get(case.loss)
        elif isinstance(case.loss, keras.losses.Loss):
            self.loss = case.loss.call

    def train(self):
        """Two steps of plain Keras."""
        self.model.compile("sgd", self.case.loss, jit_compile=False)
        size = self.model.input_shape[0] if isinstance(self.model.input_shape, tuple) else None
        x, y = self.case.data(self.generator, ROWS)
        return self.model.fit(x, y, batch_size=size or ROWS // 2, verbose=0).history["loss"]

    def demonstrate(self):
        if self.case.demonstrate:
            self.case.demonstrate(self.model)

    def batch(self, rows=ROWS // 2):
        return keras.tree.map_structure(tf.constant, self.case.data(self.generator, rows))

    def __call__(self, batch, row=None, weights=None, training=True):
        """Losses `(b,)`, whether random numbers were used, what else changed, and gradients.

        Args:
            batch: inputs and targets.
            row: whose loss is differentiated, None for none.
            weights: of the losses whose sum is differentiated, in place of one row.
            training: as `call` gets it.
        """
        before = [np.array(v) for v in self.model.variables]
        drawn = [np.array(v) for v in self.seeds]
        python_random.seed(0)  # of AugMix
        with tf.GradientTape() as tape:
            losses = self._losses(batch, training)
            whole = losses[row] if row is not None else 0.0
            whole = tf.reduce_sum(losses * weights) if weights is not None else whole
        gradients = ()
        if row is not None or weights is not None:
            variables = [v.value for v in self.model.trainable_variables]
            zero = tf.UnconnectedGradients.ZERO
            found = tape.gradient(whole, variables, unconnected_gradients=zero)
            gradients = [np.ravel(tf.convert_to_tensor(gradient)) for gradient in found]
        random = any(np.any(a != b) for a, b in zip(drawn, map(np.array, self.seeds), strict=True))
        seeds = {id(v) for v in self.seeds}
        changed = [
            v.path
            for v, old in zip(self.model.variables, before, strict=True)
            if id(v) not in seeds and np.any(np.array(v) != old)
        ]
        for seed, value in zip(self.seeds, drawn, strict=True):
            seed.assign(value)
        return losses.numpy(), random, changed, np.concatenate([[0.0], *gradients])

    def _losses(self, batch, training):
        x, y = batch
        self.model._clear_losses()
        outputs = self.model(x, training=training)
        size = tf.nest.flatten(x)[0].shape[0]
        losses = tf.cast(tf.convert_to_tensor(self.loss(y, outputs)), tf.float32)
        if losses.shape.rank == 0 or losses.shape[0] != size:
            # No loss of its own: each example has its share of one number.
            losses = tf.repeat(tf.reduce_mean(losses), size)
        losses = tf.reduce_mean(tf.reshape(losses, (size, -1)), 1)
        for value in self.model.losses:
            value = tf.cast(value, tf.float32)
            own = value / size if value.shape.rank == 0 else tf.reshape(value, (size, -1))
            losses += own if value.shape.rank == 0 else tf.reduce_sum(own, 1)
        return losses


def take(batch, rows):
    return tf.nest.map_structure(lambda t: tf.gather(t, rows), batch)


def beside(batch, others, row):
    """The batch with all rows but one exchanged."""
    return tf.nest.map_structure(
        lambda a, b: tf.tensor_scatter_nd_update(b, [[row]], a[row : row + 1]), batch, others
    )


def distance(a, b):
    a, b = np.float64(a), np.float64(b)
    return np.max(np.abs(a - b)) / max(1e-2, np.max(np.abs(a)), np.max(np.abs(b)))


def what_is_hostile(oracle):
    """A sentence on how others of the batch, or of earlier ones, reach an example; None if not."""
    for _ in range(TRIES):
        batch, others = oracle.batch(), oracle.batch()
        first, random, changed, _ = oracle(batch)
        if changed:
            return f"state: {changed}"
        for row in (0, 3, ROWS // 2 - 1):
            mixed = beside(batch, others, row)
            kept, _, _, gradients = oracle(batch, row)
            moved, _, _, other_gradients = oracle(mixed, row)
            if distance(kept[row], moved[row]) > MOVED:
                return "others of the batch move a loss"
            if distance(gradients, other_gradients) > MOVED:
                return "others of the batch move a gradient"
        if distance(first, oracle(batch)[0]) > MOVED:
            return "state: earlier batches move losses"
        if not random and not oracle.model.inputs[0].shape[0]:
            alone = [oracle(take(batch, [row]))[0][0] for row in range(ROWS // 2)]
            if distance(alone, oracle(batch)[0]) > MOVED:
                return "the place or the size of the batch moves losses"
    return None


def what_is_not_honest(oracle):
    """A sentence on the first law of honest models that does not hold; None if all hold."""
    batch, others = oracle.batch(), oracle.batch()
    losses, random, changed, _ = oracle(batch)
    if changed:
        return f"changes {changed}"
    for row in (0, 3, ROWS // 2 - 1):  # with equal random numbers
        mixed = beside(batch, others, row)
        kept, _, _, gradients = oracle(batch, row)
        moved, _, _, other_gradients = oracle(mixed, row)
        if distance(kept[row], moved[row]) > ROUNDING:
            return f"others move the loss of row {row}: {kept[row]} {moved[row]}"
        if distance(gradients, other_gradients) > ROUNDING:
            return f"others move the gradient of row {row}"
    if distance(losses, oracle(batch)[0]) > ROUNDING:
        return "earlier batches move losses"
    weights = np.linspace(0.5, 1.5, ROWS // 2).astype("float32")
    together, _, _, whole = oracle(batch, weights=weights, training=not random)
    alone = [oracle(take(batch, [i]), 0, None, not random) for i in range(ROWS // 2)]
    if distance(together, [result[0][0] for result in alone]) > ROUNDING:
        return "losses are not those of the examples alone"
    parts = sum(weight * result[3] for weight, result in zip(weights, alone, strict=True))
    if distance(whole, parts) > ROUNDING:
        return f"gradients are not those of the examples alone: {distance(whole, parts)}"
    return None
