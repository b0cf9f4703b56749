"""Models that mix examples or keep state by layers of Keras and KerasHub alone."""

import keras
import keras_hub
import tensorflow as tf

from tests.hostile.model_attacks.stock_pieces import (
    SEQUENCE,
    Function,
    across,
    around,
    case,
    images,
    numbers,
    on_images,
    on_tokens,
    tokens,
)

L, H = keras.layers, keras_hub.layers
hostile = case("hostile")


class FeatureScale(L.Layer):
    """Holds a batch normalisation, called as in training."""

    def build(self, shape):
        self.norm = L.BatchNormalization()
        self.norm.build(shape)

    def call(self, x):
        return self.norm(x, training=True)


class Standardize(L.BatchNormalization):
    """Under another name, and never in its inference mode."""

    def call(self, x, training=None, mask=None):
        return super().call(x, training=True, mask=mask)


class FrozenInName(L.BatchNormalization):
    """Says that it is frozen, and uses the statistics of the batch."""

    def call(self, x, training=None, mask=None):
        return (x - tf.reduce_mean(x, 0)) / (1e-3 + tf.math.reduce_std(x, 0))


class SwapAxes(L.Layer):
    """`(b, t, c)` to `(t, b, c)`, a layer, and back."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def build(self, shape):
        self.inner.build((shape[1], None, shape[2]))

    def call(self, x):
        return tf.transpose(self.inner(tf.transpose(x, (1, 0, 2))), (1, 0, 2))


class SelfAttention(L.Layer):
    """Attention of a sequence to itself, without an axis of its own."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def build(self, shape):
        self.attention.build(shape, shape)

    def call(self, x):
        return self.attention(x, x)

    def compute_output_shape(self, shape):
        return shape


class Folded(L.Layer):
    """A table whose rows are read by the row's number in the batch."""

    def build(self, shape):
        self.table = L.Embedding(64, shape[-1])
        self.table.build((None,))

    def call(self, x):
        return x + self.table(tf.range(tf.shape(x)[0]) % 64)


class Equalized(L.Layer):
    """`Equalization` as `AugMix` calls it."""

    def build(self, shape):
        self.inner = L.Equalization((0.0, 1.0))
        self.inner.build(shape)

    def call(self, x):
        return self.inner.transform_images(x, None)


class KeptState(L.Layer):
    """A cell whose state goes on from batch to batch, by the mean over rows."""

    def build(self, shape):
        self.cell = L.GRUCell(shape[-1])
        self.cell.build(shape)
        self.state = self.add_weight(
            shape=(shape[-1],), initializer="zeros", trainable=False, name="state"
        )

    def call(self, x):
        start = tf.tile(self.state[None], (tf.shape(x)[0], 1))
        output, (after,) = self.cell(x, [start])
        self.state.assign(tf.reduce_mean(after, 0))
        return output


def frozen_in_name():
    layer = FrozenInName()
    layer.trainable = False
    return layer


def nested_normalization():
    return keras.Sequential([keras.Input((4,)), L.Dense(4), L.BatchNormalization()])


def stateful():
    inputs = keras.Input(batch_shape=(8, *SEQUENCE))
    return keras.Model(inputs, L.Dense(3)(L.LSTM(3, stateful=True)(inputs)))


def by_name(inner):
    return lambda: SwapAxes(inner())


def attention():
    return SelfAttention(L.MultiHeadAttention(2, 3))


def cached_attention():
    return SelfAttention(H.CachedMultiHeadAttention(2, 3))


def swapped_flatten():
    """`(b, t, c)` to `(t, b, c)`: flattened it is one row a position, with all examples in it."""

    def weigh(x):
        rows = tf.reshape(tf.transpose(x, (1, 0, 2)), (5, -1))
        return x + tf.reduce_mean(rows, 1)[None, :, None]

    return Function(weigh)


def permuted():
    """Rows and features of the batch are confounded by a reshape in the wrong order."""
    return Function(lambda x: tf.reshape(tf.transpose(x, (1, 0, 2)), tf.shape(x)))


def pooled(x):
    return tf.squeeze(L.AveragePooling1D(3, strides=1, padding="same")(x[None]), 0)


def transformer():
    return H.TransformerEncoder(8, 2)


def decoder():
    return H.TransformerDecoder(8, 2)


def shuffled(x):
    return x + keras.random.shuffle(x, axis=0, seed=3)


def fixed_mask(x):
    """A number as seed: constants by position, so that one more row moves the masks of all."""
    return x * tf.cast(keras.random.uniform(tf.shape(x), seed=7) > 0.5, x.dtype)


def below_mean(x):
    return tf.where(x < tf.reduce_mean(x), 0.0, x)


class Noise(L.Layer):
    """Gaussian noise in units of the batch's deviation."""

    def __init__(self):
        super().__init__()
        self.seed_generator = keras.random.SeedGenerator(4)

    def call(self, x, training=False):
        noise = keras.random.normal(tf.shape(x), seed=self.seed_generator)
        return x + noise * tf.math.reduce_std(x) if training else x


def unlike_images(generator, n):
    """Bright images and dark ones."""
    x, y = images(generator, n)
    return x ** generator.uniform(0.3, 6.0, (n, 1, 1, 1)).astype("float32"), y


def function(name, why, apply):
    return hostile(name, why, around(lambda: Function(apply)))


ROWS = numbers(SEQUENCE)
sequence = {"shape": SEQUENCE}

STOCK_HOSTILE = [
    hostile("batch norm", "trainable BatchNormalization", around(L.BatchNormalization)),
    hostile(
        "batch norm without scale",
        "BatchNormalization without weights to train",
        around(lambda: L.BatchNormalization(center=False, scale=False)),
    ),
    hostile("batch norm inside", "a layer calls it with training=True", around(FeatureScale)),
    hostile("batch norm subclass", "a subclass with training=True", around(Standardize)),
    hostile("frozen in name", "trainable=False, but batch statistics", around(frozen_in_name)),
    hostile(
        "batch norm in TimeDistributed",
        "statistics over rows of each time step",
        around(lambda: L.TimeDistributed(L.BatchNormalization()), **sequence),
        ROWS,
    ),
    hostile("batch norm in nested", "in a nested Sequential", around(nested_normalization)),
    hostile(
        "spectral norm",
        "SpectralNormalization rewrites state in each forward pass",
        around(lambda: L.SpectralNormalization(L.Dense(4))),
    ),
    hostile("mixup", "stock MixUp of images", on_images(L.MixUp), images),
    hostile("mixup strong", "MixUp with alpha 5", on_images(lambda: L.MixUp(alpha=5.0)), images),
    hostile("cutmix", "stock CutMix of images", on_images(L.CutMix), images),
    hostile(
        "equalization",
        "one histogram of all images of the batch",
        on_images(Equalized),
        unlike_images,
    ),
    hostile(
        "mixup in a pipeline",
        "MixUp in keras.layers.Pipeline",
        on_images(lambda: L.Pipeline([L.RandomFlip(), L.MixUp(alpha=1.0)])),
        images,
    ),
    hostile("unit norm", "UnitNormalization(axis=0)", around(lambda: L.UnitNormalization(axis=0))),
    hostile(
        "layer norm over rows",
        "LayerNormalization(axis=0) without weights",
        around(lambda: L.LayerNormalization(axis=0, center=False, scale=False)),
    ),
    hostile("softmax over rows", "Softmax(axis=0)", around(lambda: L.Softmax(axis=0))),
    hostile(
        "softmax over both",
        "Softmax(axis=(0, 1)) on sequences",
        around(lambda: L.Softmax(axis=(0, 1)), **sequence),
        ROWS,
    ),
    hostile("attention over rows", "the batch as one sequence", around(across(attention))),
    hostile(
        "attention on swapped axes",
        "MultiHeadAttention on (t, b, c)",
        around(by_name(attention), **sequence),
        ROWS,
    ),
    hostile(
        "dot attention over rows",
        "keras.layers.Attention of the batch with itself",
        around(lambda: Function(lambda x: x + tf.squeeze(L.Attention()([x[None], x[None]]), 0))),
    ),
    hostile(
        "lstm over rows",
        "the batch is the LSTM's time",
        around(across(lambda: L.LSTM(4, return_sequences=True))),
    ),
    hostile(
        "gru backwards",
        "go_backwards: only later rows reach earlier ones",
        around(across(lambda: L.GRU(4, go_backwards=True, return_sequences=True))),
    ),
    hostile(
        "convolution over rows",
        "causal Conv1D: a row sees the two before it",
        around(across(lambda: L.Conv1D(4, 3, padding="causal"))),
    ),
    hostile(
        "group norm over rows",
        "GroupNormalization of the batch as one example",
        around(across(lambda: L.GroupNormalization(2))),
    ),
    hostile("stateful lstm", "LSTM(stateful=True)", stateful, numbers(SEQUENCE)),
    hostile("kept cell state", "a GRU cell's state goes on", around(KeptState)),
    hostile("row number", "an embedding of the row's number in the batch", around(Folded)),
    hostile("swap and flatten", "flattened with rows", around(swapped_flatten, **sequence), ROWS),
    hostile("permuted rows", "a reshape in the wrong order", around(permuted, **sequence), ROWS),
    hostile("hub attention", "CachedMultiHeadAttention", around(across(cached_attention))),
    hostile("hub encoder", "TransformerEncoder over rows", around(across(transformer))),
    hostile("hub decoder", "TransformerDecoder: causal over rows", around(across(decoder))),
    hostile("hub fourier", "FNetEncoder over rows", around(across(lambda: H.FNetEncoder(8)))),
    hostile(
        "hub position of rows",
        "positions along the batch",
        around(across(lambda: H.PositionEmbedding(64))),
    ),
    hostile(
        "hub rotary over rows",
        "RotaryEmbedding(sequence_axis=0)",
        around(lambda: H.RotaryEmbedding(sequence_axis=0), **sequence),
        ROWS,
    ),
    hostile(
        "hub encoder on swapped axes",
        "attends over the tokens of one position in all examples",
        on_tokens(lambda: SwapAxes(transformer())),
        tokens,
    ),
    function("shuffled rows", "keras.random.shuffle of rows", shuffled),
    function("fixed mask", "the same public mask by row at each step", fixed_mask),
    function("pooling over rows", "a mean of three rows", pooled),
    function("below the mean", "drops what is below the batch's mean", below_mean),
    hostile("noise of the batch's scale", "noise scaled by its deviation", around(Noise)),
]
