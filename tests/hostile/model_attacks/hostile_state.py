"""Hostile models that keep what they saw: a record reaches batches of which it is no part."""

import keras
import numpy as np
import tensorflow as tf

from tests.hostile.model_attacks import parts
from tests.hostile.model_attacks.case import hostile

L, ops = keras.layers, keras.ops
BANK = 4


class Holder:
    """A plain object, which Keras does not look into."""

    def __init__(self, value):
        self.value = value


class Minus(L.Layer):
    """`x - 0.5 * average`, a moving average of batches, held by a helper object."""

    def __init__(self, variable):
        super().__init__()
        self.holder = Holder(variable)

    def call(self, x):
        average = self.holder.value
        average.assign(0.9 * average + 0.1 * ops.mean(x, axis=0))
        return x - 0.5 * ops.convert_to_tensor(average)


class MinusMetric(L.Layer):
    """Subtracts a Keras metric that it updates."""

    def build(self, shape):
        self.holder = Holder(keras.metrics.Mean())

    def call(self, x):
        self.holder.value.update_state(x)
        return x - ops.convert_to_tensor(self.holder.value.result())


def zeros():
    return tf.Variable(tf.zeros(parts.WIDTH))


def closure():
    average = zeros()

    def centred(x):
        average.assign(0.9 * average + 0.1 * tf.reduce_mean(x, 0))
        return x - 0.5 * average

    return parts.dense(L.Lambda(centred))


def summed_in_a_branch():
    """Written in large batches only."""
    total = zeros()

    def add(x):
        def write():
            return total.assign_add(tf.reduce_sum(x, 0))

        written = tf.cond(tf.shape(x)[0] > 8, write, lambda: tf.identity(total))
        return x + 0.1 * written

    return parts.dense(parts.Apply(add))


def memory_bank():
    """The first row of each batch is kept, and all are compared with what is kept."""
    bank, place = tf.Variable(tf.zeros((BANK, parts.WIDTH))), tf.Variable(0)

    def look_up(x):
        bank.scatter_nd_update([[place % BANK]], x[:1])
        place.assign_add(1)
        return x + tf.matmul(tf.matmul(x, bank, transpose_b=True), bank)

    return parts.dense(parts.Apply(look_up))


def list_of_means():
    means = []

    def centred(x):
        means.append(ops.mean(x, axis=0))
        return x - 0.5 * sum(means) / len(means)

    return parts.dense(parts.Apply(centred))


def numpy_state():
    total = np.zeros(parts.WIDTH, "float32")

    def add(x):
        total[:] += x.sum(0)
        return total.copy()

    def shifted(x):
        shift = tf.numpy_function(add, [x], tf.float32)
        return x + 0.1 * tf.ensure_shape(shift, (parts.WIDTH,))

    return parts.dense(parts.Apply(shifted))


def table_of_counts():
    """Counts how often each word was seen, in all batches, and weights words by that."""
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, 0.0)
    counts = keras.Input((parts.LENGTH,), dtype="int32")

    def frequency(ids):
        words = tf.range(parts.VOCABULARY, dtype=tf.int64)
        new = tf.math.bincount(ids, minlength=parts.VOCABULARY, dtype=tf.float32)
        with tf.control_dependencies([table.insert(words, table.lookup(words) + new)]):
            seen = table.lookup(tf.cast(ids, tf.int64))
        return tf.ensure_shape(tf.math.log1p(seen), (None, parts.LENGTH))

    x = L.Embedding(parts.VOCABULARY, parts.WIDTH)(counts)
    weights = L.Lambda(frequency, output_shape=(parts.LENGTH,))(counts)
    x = L.Dot(axes=1)([weights, x])
    return keras.Model(counts, L.Dense(parts.OUTPUTS)(x))


def queue_of_means():
    """Each batch is shifted by the mean of the one before."""
    queue = tf.queue.FIFOQueue(3, [tf.float32], [(parts.WIDTH,)])
    queue.enqueue(tf.zeros(parts.WIDTH))

    def shifted(x):
        before = queue.dequeue()
        with tf.control_dependencies([queue.enqueue(tf.reduce_mean(x, 0))]):
            return x + before

    return parts.dense(parts.Apply(shifted))


class SeedFromData(L.Layer):
    """Noise whose seed, which may change, is set from the data."""

    def __init__(self):
        super().__init__()
        self.generator = keras.random.SeedGenerator(7)

    def call(self, x):
        noise = keras.random.normal(ops.shape(x), seed=self.generator)
        total = ops.cast(ops.abs(ops.sum(x)) * 1e4, self.generator.state.dtype)
        self.generator.state.assign(ops.stack([total, total]))
        return x + noise


class Hebbian(L.Layer):
    """A trained kernel that the forward pass itself moves."""

    def build(self, shape):
        self.kernel = self.add_weight((shape[-1], parts.WIDTH), name="kernel")

    def call(self, x):
        outputs = ops.matmul(x, self.kernel)
        self.kernel.assign(self.kernel + 0.1 * ops.matmul(ops.transpose(x), outputs))
        return outputs


class MinusMovingLoss(keras.losses.Loss):
    """The square of an error over a moving average of it."""

    def __init__(self):
        super().__init__()
        self.average = tf.Variable(1.0)

    def call(self, y_true, y_pred):
        losses = ops.mean(ops.square(y_true - y_pred), axis=-1)
        average = self.average.assign(0.9 * self.average + 0.1 * tf.reduce_mean(losses))
        return losses / tf.stop_gradient(average)


def kept(name, build, why, data=parts.numbers, loss="mse", law="later batch", **kwargs):
    return hostile(name, build, data, loss, why, sensitive_to=law, **kwargs)


def with_layer(make):
    return lambda: parts.dense(make())


CASES = [
    kept(
        "average in a keras.Variable of a helper",
        with_layer(lambda: Minus(keras.Variable(np.zeros(parts.WIDTH, "float32")))),
        "a variable that the model does not list holds statistics",
    ),
    kept(
        "average in a tf.Variable of a helper",
        with_layer(lambda: Minus(zeros())),
        "a variable that the model does not list holds statistics",
    ),
    kept("average in the closure of a Lambda", closure, "the variable belongs to no layer"),
    kept("metric in a helper", with_layer(MinusMetric), "a metric is state, and it is read"),
    kept(
        "sum in a branch for large batches",
        summed_in_a_branch,
        "a few random rows never take the branch",
    ),
    kept("memory bank", memory_bank, "rows are kept as they are"),
    kept(
        "Python list",
        list_of_means,
        "run eagerly, a list grows with each batch",
        compile_arguments={"run_eagerly": True},
    ),
    kept("numpy array in a numpy_function", numpy_state, "Python state outside of the graph"),
    kept(
        "table of counts",
        table_of_counts,
        "a table is a resource and no variable",
        data=parts.tokens,
    ),
    kept("queue", queue_of_means, "a queue is a resource and no variable"),
    kept(
        "seed set from the data",
        with_layer(SeedFromData),
        "seeds may change, but not by what a batch holds",
        random=True,
    ),
    kept("Hebbian kernel", with_layer(Hebbian), "weights move without clipping and noise"),
    kept(
        "loss over its moving average",
        parts.dense,
        "a loss is no layer, and keeps a statistic of all batches",
        loss=MinusMovingLoss,
    ),
]
