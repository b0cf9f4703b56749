"""Models of methods that look at the batch: contrastive losses, capacities, codebooks, queues."""

import keras
import tensorflow as tf

from tests.hostile.model_attacks.stock_pieces import (
    Function,
    around,
    assign,
    case,
    labelled,
)

L = keras.layers
hostile = case("hostile")
LABELS = labelled()


class Experts(L.Layer):
    """Two experts, the best one for each row; subclasses say how rows are assigned.

    Args:
        gate: initial value of the weight of their output.
    """

    def __init__(self, gate=1.0):
        super().__init__()
        self.gate_value = gate

    def build(self, shape):
        self.router, self.experts = L.Dense(2), [L.Dense(shape[-1]), L.Dense(shape[-1])]
        for layer in (self.router, *self.experts):
            layer.build(shape)
        initializer = keras.initializers.Constant(self.gate_value)
        self.gate = self.add_weight(shape=(), initializer=initializer, name="gate")

    def call(self, x):
        chances = tf.nn.softmax(self.router(x))
        shares = self.assign_rows(chances)
        outputs = tf.stack([expert(x) for expert in self.experts], -1)
        return x + self.gate * tf.reduce_sum(outputs * shares[:, None], -1)


class Capacity(Experts):
    """A full expert drops the rows that come later."""

    capacity = 2

    def assign_rows(self, chances):
        chosen = tf.one_hot(tf.argmax(chances, -1), 2)
        place = tf.cumsum(chosen, 0) * chosen
        return chances * chosen * tf.cast(place <= self.capacity, chances.dtype)


class LargeCapacity(Capacity):
    """Drops only in batches of more than six rows for one expert."""

    capacity = 6


class ExpertChoice(Experts):
    """Each expert takes the rows that want it most."""

    def assign_rows(self, chances):
        places = tf.minimum(2, tf.shape(chances)[0])
        best = tf.math.top_k(tf.transpose(chances), k=places).values[:, -1]
        return tf.where(chances >= best, chances, 0.0)


class SoftExperts(Experts):
    """Weights over the rows of the batch."""

    def assign_rows(self, chances):
        return tf.nn.softmax(3.0 * chances, 0)


class Balanced(Experts):
    """The loss that balances the load of experts is a product of two batch means."""

    def assign_rows(self, chances):
        load = tf.reduce_mean(tf.one_hot(tf.argmax(chances, -1), 2), 0)
        self.add_loss(2.0 * tf.reduce_sum(load * tf.reduce_mean(chances, 0)))
        return chances


class BalancedByRow(Experts):
    """The same, handed to each row so that the loss has the shape of one a row."""

    def assign_rows(self, chances):
        load = tf.reduce_mean(tf.one_hot(tf.argmax(chances, -1), 2), 0)
        self.add_loss(0.1 * tf.reduce_sum(load * chances, -1))
        return chances


class Codebook(L.Layer):
    """Vectors are replaced by their nearest code; codes follow the mean of their rows."""

    decay = 0.9

    def build(self, shape):
        self.codes = self.add_weight(
            shape=(4, shape[-1]), initializer="random_normal", trainable=False, name="codes"
        )

    def call(self, x):
        distance = tf.reduce_sum((x[:, None] - self.codes) ** 2, -1)
        chosen = tf.one_hot(tf.argmin(distance, -1), 4)
        self.update(x, chosen)
        return x + tf.stop_gradient(chosen @ self.codes - x)

    def update(self, x, chosen):
        count = tf.reduce_sum(chosen, 0)[:, None]
        mean = tf.math.divide_no_nan(tf.matmul(chosen, x, transpose_a=True), count)
        moved = self.decay * self.codes + (1.0 - self.decay) * mean
        self.codes.assign(tf.where(count > 0, moved, self.codes))


class Revived(Codebook):
    """Codes that nobody uses become a row of the batch."""

    def update(self, x, chosen):
        unused = tf.reduce_sum(chosen, 0)[:, None] == 0
        self.codes.assign(tf.where(unused, x[:1], self.codes))


class Perplexity(Codebook):
    """The use of codes in the batch is part of each row's loss."""

    def update(self, x, chosen):
        soft = tf.nn.softmax(-tf.reduce_sum((x[:, None] - self.codes) ** 2, -1))
        use = tf.reduce_mean(soft, 0)
        self.add_loss(0.1 * tf.reduce_sum(soft * tf.math.log(use + 1e-6), -1))


class Bank(L.Layer):
    """A queue of earlier rows, with which each row is compared."""

    def build(self, shape):
        self.rows = self.add_weight(
            shape=(8, shape[-1]), initializer="random_normal", trainable=False, name="rows"
        )

    def call(self, x):
        seen = tf.nn.softmax(tf.matmul(x, self.rows, transpose_b=True)) @ self.rows
        self.rows.assign(tf.concat([tf.stop_gradient(x), self.rows], 0)[:8])
        return x + seen


class HiddenBank(L.Layer):
    """The same in a TensorFlow variable that the model does not list."""

    def build(self, shape):
        self.held = [tf.Variable(tf.zeros((1, shape[-1])), trainable=False)]

    def call(self, x):
        variable = self.held[0]
        output = x + variable
        variable.assign(0.5 * variable + 0.5 * tf.reduce_mean(x, 0, keepdims=True))
        return output


class Center(L.Layer):
    """The centre of DINO: a moving average of outputs that is taken off."""

    def build(self, shape):
        self.centre = self.add_weight(
            shape=(shape[-1],), initializer="zeros", trainable=False, name="centre"
        )

    def call(self, x, training=False):
        if training:
            self.centre.assign(0.9 * self.centre + 0.1 * tf.reduce_mean(x, 0))
        return tf.nn.softmax((x - self.centre) / 0.5)


def sinkhorn(x):
    """Scores whose rows and columns are made to add up, as in SwAV."""
    weights = tf.exp(tf.clip_by_value(x, -3.0, 3.0))
    for _ in range(3):
        weights = weights / tf.reduce_sum(weights, 0, keepdims=True)
        weights = weights / tf.reduce_sum(weights, 1, keepdims=True)
    return weights


def whitened(x):
    centred = x - tf.reduce_mean(x, 0)
    covariance = tf.matmul(centred, centred, transpose_a=True) + 0.5 * tf.eye(4)
    factor = tf.linalg.cholesky(covariance)
    return tf.transpose(tf.linalg.triangular_solve(factor, tf.transpose(centred)))


def main_direction(x):
    """Rows without their part along the batch's first singular vector, which has no gradient."""
    right = tf.linalg.svd(tf.stop_gradient(x))[2][:, :1]
    return x - tf.matmul(tf.matmul(x, right), right, transpose_b=True)


def in_batch_negatives(y, outputs):
    """Each row's target against those of all others."""
    return tf.keras.losses.sparse_categorical_crossentropy(
        tf.range(tf.shape(y)[0]), tf.matmul(outputs, y, transpose_b=True), from_logits=True
    )


def hardest_triplet(y, outputs):
    same = tf.reshape(y, (-1, 1)) == tf.reshape(y, (1, -1))
    distance = tf.reduce_sum((outputs[:, None] - outputs[None]) ** 2, -1)
    far = tf.reduce_max(tf.where(same, distance, 0.0), 1)
    near = tf.reduce_min(tf.where(same, 1e3, distance), 1)
    return tf.nn.relu(far - near + 1.0)


def supervised_contrast(y, outputs):
    unit = tf.math.l2_normalize(outputs, -1)
    log_chance = tf.nn.log_softmax(tf.matmul(unit, unit, transpose_b=True) / 0.5)
    same = tf.cast(tf.reshape(y, (-1, 1)) == tf.reshape(y, (1, -1)), log_chance.dtype)
    return -tf.reduce_sum(same * log_chance, 1) / tf.reduce_sum(same, 1)


def redundancy(y, outputs):
    """Barlow twins: the correlation of features over the batch, handed to each row."""
    correlation = tf.matmul(outputs, y, transpose_a=True) / tf.cast(tf.shape(y)[0], y.dtype)
    return tf.reduce_sum((outputs - y) ** 2, -1) + tf.reduce_sum((correlation - tf.eye(3)) ** 2)


def correlation(y, outputs):
    a, b = y - tf.reduce_mean(y, 0), outputs - tf.reduce_mean(outputs, 0)
    return -tf.reduce_sum(a * b, -1) / (1e-3 + tf.norm(a) * tf.norm(b))


def hard_examples(y, outputs):
    """OHEM: only the larger half of the losses counts."""
    losses = tf.reduce_mean((y - outputs) ** 2, -1)
    return tf.where(losses >= tf.sort(losses)[tf.shape(losses)[0] // 2], losses, 0.0)


def balanced_by_count(y, outputs):
    y = tf.cast(tf.reshape(y, (-1,)), tf.int32)
    count = tf.gather(tf.math.bincount(y, minlength=3, maxlength=3), y)
    losses = tf.keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)
    return losses / tf.cast(count, losses.dtype)


def ranked(y, outputs):
    """A row's output against those of all rows with a smaller target."""
    y, outputs = y[:, 0], outputs[:, 0]
    margin = tf.nn.softplus(outputs[None] - outputs[:, None])
    return tf.reduce_sum(margin * tf.cast(y[:, None] > y[None], margin.dtype), 1)


def moment_match(y, outputs):
    return tf.reduce_mean((outputs - y) ** 2, -1) + tf.norm(tf.reduce_mean(outputs - y, 0))


def by_largest(y, outputs):
    losses = tf.reduce_mean((outputs - y) ** 2, -1)
    return losses / tf.stop_gradient(tf.reduce_max(losses) + 1e-3)


class RunningScale(keras.losses.Loss):
    """Divides by a maximum that it keeps from batch to batch."""

    def __init__(self):
        super().__init__()
        self.largest = None

    def call(self, y, outputs):
        losses = tf.reduce_mean((outputs - y) ** 2, -1)
        if self.largest is None:
            with tf.init_scope():
                self.largest = tf.Variable(1.0, trainable=False)
        self.largest.assign(tf.maximum(self.largest, tf.reduce_max(losses)))
        return losses / self.largest


def plain(shape=None):
    return around(lambda: L.Dense(4, activation="tanh"), **({"shape": shape} if shape else {}))


def function(name, why, apply):
    return hostile(name, why, around(lambda: Function(apply)))


def loss(name, why, apply, data=None):
    return hostile(name, why, plain(), data, apply)


METHODS_HOSTILE = [
    hostile("experts with capacity", "a full expert drops later rows", around(Capacity)),
    hostile("experts with large capacity", "drops in large batches", around(LargeCapacity)),
    hostile(
        "gated experts with capacity",
        "behind a zero gate",
        around(lambda: Capacity(0.0)),
        demonstrate=assign("gate", 1.0),
    ),
    hostile("expert choice", "experts take their best rows", around(ExpertChoice)),
    hostile("soft experts", "softmax over rows", around(SoftExperts)),
    hostile("load balance", "add_loss of batch means", around(Balanced)),
    hostile("load balance by row", "batch means in a loss for each row", around(BalancedByRow)),
    hostile("codebook with averages", "VQ-VAE, EMA", around(Codebook)),
    hostile("codebook revived", "unused codes become rows", around(Revived)),
    hostile("codebook perplexity", "use of codes in the batch", around(Perplexity)),
    hostile("memory bank", "a queue of earlier rows", around(Bank)),
    hostile("hidden memory", "a tf.Variable in a list", around(HiddenBank)),
    hostile("centre", "a moving average of outputs", around(Center)),
    function("sinkhorn", "normalised over rows and columns", sinkhorn),
    function("whitened", "Cholesky factor of the batch covariance", whitened),
    function("main direction", "the batch's singular vector is taken off", main_direction),
    loss("in-batch negatives", "targets of other rows", in_batch_negatives),
    loss("hardest triplet", "mined in the batch", hardest_triplet, LABELS),
    loss("supervised contrast", "rows of the same label", supervised_contrast, LABELS),
    loss("redundancy", "Barlow twins", redundancy),
    loss("correlation", "Pearson over the batch", correlation),
    loss("hard examples", "OHEM", hard_examples),
    loss("balanced by count", "weights from the batch's labels", balanced_by_count, LABELS),
    loss("ranked", "pairs of rows", ranked),
    loss("moments", "distance of batch means", moment_match),
    loss("by the largest", "divided by the batch's maximum", by_largest),
    loss("running scale", "a loss with a state", RunningScale()),
    loss("circle", "keras.losses.Circle", keras.losses.Circle(), LABELS),
    loss("cosine over rows", "CosineSimilarity(axis=0)", keras.losses.CosineSimilarity(axis=0)),
]
