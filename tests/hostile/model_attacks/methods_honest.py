"""The same methods as in `methods_hostile`, each within one example."""

import keras
import tensorflow as tf

from tests.hostile.model_attacks.methods_hostile import Codebook, Experts
from tests.hostile.model_attacks.stock_pieces import (
    SEQUENCE,
    Function,
    around,
    case,
    labelled,
    numbers,
)

L = keras.layers
honest = case("honest")
ROWS, LABELS = numbers(SEQUENCE), labelled()


class OwnExpert(Experts):
    """Each row goes to its best expert, however many others do."""

    def assign_rows(self, chances):
        return chances * tf.one_hot(tf.argmax(chances, -1), 2)


class OwnLoad(Experts):
    """The entropy of a row's choice is part of its loss."""

    def assign_rows(self, chances):
        self.add_loss(0.1 * tf.reduce_sum(chances * tf.math.log(chances + 1e-6), -1))
        return chances


class TokenExperts(L.Layer):
    """Two experts for the tokens of an example; subclasses assign `(b, t, e)`."""

    def build(self, shape):
        self.router, self.experts = L.Dense(2), [L.Dense(shape[-1]), L.Dense(shape[-1])]
        for layer in (self.router, *self.experts):
            layer.build(shape)

    def call(self, x):
        shares = self.assign_tokens(tf.nn.softmax(self.router(x)))
        outputs = tf.stack([expert(x) for expert in self.experts], -1)
        return x + tf.reduce_sum(outputs * shares[:, :, None], -1)


class TokenCapacity(TokenExperts):
    """An expert takes at most two tokens of each example."""

    def assign_tokens(self, chances):
        chosen = tf.one_hot(tf.argmax(chances, -1), 2)
        place = tf.cumsum(chosen, 1) * chosen
        return chances * chosen * tf.cast(place <= 2.0, chances.dtype)


class TokenChoice(TokenExperts):
    """Each expert takes its best two tokens of each example."""

    def assign_tokens(self, chances):
        best = tf.math.top_k(tf.transpose(chances, (0, 2, 1)), k=2).values[:, None, :, -1]
        return tf.where(chances >= best, chances, 0.0)


class SoftTokens(TokenExperts):
    """Weights over the tokens of an example."""

    def assign_tokens(self, chances):
        return tf.nn.softmax(3.0 * chances, 1)


class BalancedTokens(TokenExperts):
    """The load of experts is balanced within each example."""

    def assign_tokens(self, chances):
        load = tf.reduce_mean(tf.one_hot(tf.argmax(chances, -1), 2), 1)
        self.add_loss(0.1 * tf.reduce_sum(load * tf.reduce_mean(chances, 1), -1))
        return chances


class FixedCodes(Codebook):
    """Straight-through gradients to the rows; the codes stay."""

    def update(self, x, chosen):
        self.add_loss(0.1 * tf.reduce_mean((x - tf.stop_gradient(chosen @ self.codes)) ** 2, -1))


class TrainedCodes(L.Layer):
    """VQ-VAE without averages: codes are trained by their gradients."""

    def build(self, shape):
        self.codes = self.add_weight((4, shape[-1]), "random_normal", name="codes")

    def call(self, x):
        codes = tf.convert_to_tensor(self.codes)
        distance = tf.reduce_sum((x[:, None] - codes) ** 2, -1)
        nearest = tf.gather(codes, tf.argmin(distance, -1))
        commitment = tf.reduce_mean((tf.stop_gradient(nearest) - x) ** 2, -1)
        self.add_loss(tf.reduce_mean((nearest - tf.stop_gradient(x)) ** 2, -1) + 0.2 * commitment)
        return x + tf.stop_gradient(nearest - x)


class FixedBank(L.Layer):
    """Rows are compared with a bank that never changes."""

    def build(self, shape):
        self.rows = self.add_weight(
            shape=(8, shape[-1]), initializer="random_normal", trainable=False, name="rows"
        )

    def call(self, x):
        return x + tf.nn.softmax(tf.matmul(x, self.rows, transpose_b=True)) @ self.rows


class Whitened(L.Layer):
    """Features are whitened over the time of each example."""

    def call(self, x):
        centred = x - tf.reduce_mean(x, 1, keepdims=True)
        covariance = tf.matmul(centred, centred, transpose_a=True) + 0.5 * tf.eye(4)
        solved = tf.linalg.triangular_solve(
            tf.linalg.cholesky(covariance), tf.transpose(centred, (0, 2, 1))
        )
        return tf.transpose(solved, (0, 2, 1))


class HalfAndHalf(L.Layer):
    """MixUp of the two halves of one example, with a share of its own."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(3)

    def call(self, x, training=False):
        if not training:
            return x
        share = keras.random.uniform((tf.shape(x)[0], 1), seed=self.seed_generator)
        return share * x + (1.0 - share) * tf.reverse(x, [1])


class OwnSeed(L.Layer):
    """A mask whose seed is made of the row itself."""

    def call(self, x):
        def mask(row):
            seed = tf.cast(row[:2] * 1000.0, tf.int32)
            return tf.cast(tf.random.stateless_uniform((4,), seed) > 0.3, x.dtype)

        return x * tf.map_fn(mask, tf.stop_gradient(x))


def sinkhorn_over_time(x):
    weights = tf.exp(tf.clip_by_value(x, -3.0, 3.0))
    for _ in range(3):
        weights = weights / tf.reduce_sum(weights, 1, keepdims=True)
        weights = weights / tf.reduce_sum(weights, 2, keepdims=True)
    return weights


def main_direction(x):
    """The first singular vector of each example's tokens."""
    right = tf.linalg.svd(tf.stop_gradient(x))[2][:, :, :1]
    return x - tf.matmul(tf.matmul(x, right), right, transpose_b=True)


def bootstrap():
    """BYOL with a frozen target network: predictor and stopped gradients."""
    inputs = keras.Input((2, 6))
    first, second = inputs[:, 0], inputs[:, 1]
    online, predictor, target = L.Dense(4, activation="tanh"), L.Dense(4), L.Dense(4)
    target.trainable = False
    stopped = L.Lambda(tf.stop_gradient)(target(second))
    joined = L.Concatenate()([predictor(online(first)), stopped])
    return keras.Model(inputs, joined)


def symmetric():
    """SimSiam: one network, stopped gradients."""
    inputs = keras.Input((2, 6))
    network, predictor = L.Dense(4, activation="tanh"), L.Dense(4)
    first, second = network(inputs[:, 0]), network(inputs[:, 1])
    stopped = L.Lambda(tf.stop_gradient)(second)
    return keras.Model(inputs, L.Concatenate()([predictor(first), stopped]))


def distance_of_halves(y, outputs):
    first, second = tf.split(outputs, 2, -1)
    return -tf.reduce_sum(tf.math.l2_normalize(first, -1) * tf.math.l2_normalize(second, -1), -1)


def triplet():
    inputs = keras.Input((3, 6))
    return keras.Model(inputs, L.Dense(4)(L.Dense(5, activation="tanh")(inputs)))


def triplet_loss(y, outputs):
    near = tf.reduce_sum((outputs[:, 0] - outputs[:, 1]) ** 2, -1)
    far = tf.reduce_sum((outputs[:, 0] - outputs[:, 2]) ** 2, -1)
    return tf.nn.relu(near - far + 1.0)


def steps():
    inputs = keras.Input(SEQUENCE)
    return keras.Model(inputs, L.Dense(3)(L.GRU(4, return_sequences=True)(inputs)))


def negatives_of_the_sequence(y, outputs):
    """CPC: each time against the other times of its example."""
    scores = tf.matmul(outputs[:, :-1], outputs[:, 1:], transpose_b=True)
    diagonal = tf.linalg.diag_part(tf.nn.log_softmax(scores))
    return -tf.reduce_mean(diagonal, -1)


def redundancy_of_the_sequence(y, outputs):
    correlation = tf.matmul(outputs, outputs, transpose_a=True) / 5.0
    return tf.reduce_sum((correlation - tf.eye(3)) ** 2, (1, 2))


def correlation_of_the_sequence(y, outputs):
    a = outputs[..., 0] - tf.reduce_mean(outputs[..., 0], 1, keepdims=True)
    b = outputs[..., 1] - tf.reduce_mean(outputs[..., 1], 1, keepdims=True)
    return -tf.reduce_sum(a * b, 1) / (1e-3 + tf.norm(a, axis=1) * tf.norm(b, axis=1))


def hard_tokens(y, outputs):
    """The largest two token losses of each example."""
    losses = tf.reduce_mean(outputs**2, -1)
    return tf.reduce_mean(tf.math.top_k(losses, 2).values, -1)


def fixed_class_weights(y, outputs):
    y = tf.cast(tf.reshape(y, (-1,)), tf.int32)
    losses = tf.keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)
    return losses * tf.gather(tf.constant([1.0, 2.0, 0.5]), y)


def focal(y, outputs):
    y = tf.cast(tf.reshape(y, (-1,)), tf.int32)
    losses = tf.keras.losses.sparse_categorical_crossentropy(y, outputs, from_logits=True)
    return (1.0 - tf.exp(-losses)) ** 2 * losses


def ranked_outputs(y, outputs):
    """Pairs of outputs of one example."""
    margin = tf.nn.softplus(outputs[:, None] - outputs[:, :, None])
    ordered = tf.cast(y[:, :, None] > y[:, None], margin.dtype)
    return tf.reduce_sum(margin * ordered, (1, 2))


def plain():
    return around(lambda: L.Dense(4, activation="tanh"))


def over_time(name, why, layer):
    return honest(name, why, around(layer, shape=SEQUENCE), ROWS)


def function(name, why, apply):
    return over_time(name, why, lambda: Function(apply))


def loss(name, why, apply, data=None):
    return honest(name, why, plain(), data, apply)


def of_steps(name, why, apply):
    return honest(name, why, steps, ROWS, apply)


METHODS_HONEST = [
    honest("experts without capacity", "each row to its best expert", around(OwnExpert)),
    honest("entropy of experts", "add_loss of one value a row", around(OwnLoad)),
    over_time("experts with capacity in a row", "tokens of one example", TokenCapacity),
    over_time("expert choice in a row", "the best tokens of one example", TokenChoice),
    over_time("soft experts in a row", "softmax over tokens", SoftTokens),
    over_time("load balance in a row", "add_loss of means over tokens", BalancedTokens),
    honest("fixed codebook", "straight-through gradients", around(FixedCodes)),
    honest("trained codebook", "codes are trained by gradients", around(TrainedCodes)),
    honest("fixed bank", "rows that never change", around(FixedBank)),
    honest("halves", "MixUp within an example", around(HalfAndHalf)),
    honest("own seed", "a mask seeded by the row itself", around(OwnSeed)),
    function("sinkhorn over time", "over time and features", sinkhorn_over_time),
    over_time("whitened over time", "Cholesky of each example", Whitened),
    function("main direction of a row", "singular vectors of each example", main_direction),
    honest("bootstrap", "BYOL", bootstrap, numbers((2, 6)), distance_of_halves),
    honest("symmetric", "SimSiam", symmetric, numbers((2, 6)), distance_of_halves),
    honest("triplet", "three rows in one example", triplet, numbers((3, 6)), triplet_loss),
    of_steps("negatives of the sequence", "CPC in one example", negatives_of_the_sequence),
    of_steps("redundancy of the sequence", "correlation over time", redundancy_of_the_sequence),
    of_steps("correlation of the sequence", "Pearson over time", correlation_of_the_sequence),
    of_steps("hard tokens", "the largest token losses of an example", hard_tokens),
    loss("fixed class weights", "a constant table", fixed_class_weights, LABELS),
    loss("focal", "weights of a row's own chance", focal, LABELS),
    loss("ranked outputs", "pairs of outputs of an example", ranked_outputs),
    loss("huber", "keras.losses.Huber", keras.losses.Huber()),
    loss("cosine", "CosineSimilarity over features", keras.losses.CosineSimilarity()),
    loss("dice by row", "Dice(axis=1)", keras.losses.Dice(axis=1)),
    loss("log cosh", "keras.losses.LogCosh", keras.losses.LogCosh()),
]
