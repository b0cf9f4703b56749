"""Models of stock layers of Keras and KerasHub whose examples are independent."""

import keras
import keras_hub
import tensorflow as tf

from tests.hostile.model_attacks.stock_pieces import (
    CLASSES,
    IMAGE,
    SEQUENCE,
    Function,
    around,
    case,
    images,
    numbers,
    on_images,
    on_tokens,
    tokens,
)

L, H = keras.layers, keras_hub.layers
honest = case("honest")
PIXELS = {"value_range": (0.0, 1.0)}

# The preprocessing layers of images that treat each by itself, with random numbers of its own.
AUGMENTATIONS = {
    "AutoContrast": lambda: L.AutoContrast(**PIXELS),
    "CenterCrop": lambda: L.CenterCrop(7, 7),
    "RandomBrightness": lambda: L.RandomBrightness(0.3, **PIXELS),
    "RandomColorDegeneration": lambda: L.RandomColorDegeneration(0.5, **PIXELS),
    "RandomColorJitter": lambda: L.RandomColorJitter(
        brightness_factor=0.2, contrast_factor=0.2, saturation_factor=0.2, hue_factor=0.1, **PIXELS
    ),
    "RandomContrast": lambda: L.RandomContrast(0.3, **PIXELS),
    "RandomCrop": lambda: L.RandomCrop(7, 7),
    "RandomElasticTransform": lambda: L.RandomElasticTransform(**PIXELS),
    "RandomErasing": lambda: L.RandomErasing(**PIXELS),
    "RandomFlip": lambda: L.RandomFlip(),
    "RandomGaussianBlur": lambda: L.RandomGaussianBlur(**PIXELS),
    "RandomGrayscale": lambda: L.RandomGrayscale(),
    "RandomHue": lambda: L.RandomHue(0.2, **PIXELS),
    "RandomInvert": lambda: L.RandomInvert(0.5, **PIXELS),
    "RandomPerspective": lambda: L.RandomPerspective(),
    "RandomPosterization": lambda: L.RandomPosterization(4, **PIXELS),
    "RandomRotation": lambda: L.RandomRotation(0.2),
    "RandomSaturation": lambda: L.RandomSaturation(0.3, **PIXELS),
    "RandomSharpness": lambda: L.RandomSharpness(0.3, **PIXELS),
    "RandomShear": lambda: L.RandomShear(0.2, 0.2),
    "RandomTranslation": lambda: L.RandomTranslation(0.2, 0.2),
    "RandomZoom": lambda: L.RandomZoom(0.2),
    "Solarization": lambda: L.Solarization(0.1, 0.3, **PIXELS),
}


def frozen_normalization():
    layer = L.BatchNormalization()
    layer.trainable = False
    return layer


def frozen_nested():
    inner = keras.Sequential([keras.Input((4,)), L.BatchNormalization(), L.Activation("relu")])
    inner.trainable = False
    return inner


class Normalized(L.Layer):
    """A frozen batch normalisation inside of a layer that trains."""

    def build(self, shape):
        self.norm, self.dense = frozen_normalization(), L.Dense(4)
        self.norm.build(shape)
        self.dense.build(shape)

    def call(self, x):
        return self.dense(self.norm(x))


class Attends(L.Layer):
    """Attention of each example's sequence to itself, with a residual."""

    def __init__(self, attention):
        super().__init__()
        self.attention = attention

    def build(self, shape):
        self.attention.build(shape, shape)

    def call(self, x):
        return x + self.attention(x, x)


class Residual(L.Layer):
    """The input and what a layer without weights makes of it."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def call(self, x):
        return x + self.inner(x)


class SwappedTwice(L.Layer):
    """Axes are swapped and swapped back around a layer that knows no position."""

    def __init__(self):
        super().__init__()
        self.dense = L.Dense(4)

    def build(self, shape):
        self.dense.build(shape)

    def call(self, x):
        return tf.transpose(self.dense(tf.transpose(x, (1, 0, 2))), (1, 0, 2))


class MergedPositions(L.Layer):
    """`(b, t, c)` as `(b t, c)` through a function of features, and back."""

    def call(self, x):
        rows = tf.reshape(x, (-1, 4))
        rows = tf.nn.softmax(rows) * tf.math.rsqrt(1.0 + tf.reduce_sum(rows**2, 1, keepdims=True))
        return tf.reshape(rows, (-1, 5, 4))


def masked_language_head():
    """`MaskedLMHead` gathers the tokens at positions of the same example."""
    words = keras.Input((6,), dtype="int32", name="words")
    positions = keras.Input((2,), dtype="int32", name="positions")
    table = H.ReversibleEmbedding(9, 4)
    hidden = H.TransformerEncoder(8, 2)(table(words))
    logits = H.MaskedLMHead(token_embedding=table)(hidden, positions)
    return keras.Model({"words": words, "positions": positions}, logits)


def masked_words(generator, n):
    x = {
        "words": generator.integers(0, 9, (n, 6)).astype("int32"),
        "positions": generator.integers(0, 6, (n, 2)).astype("int32"),
    }
    return x, generator.normal(size=(n, 2, 9)).astype("float32")


def alibi():
    class Biased(L.Layer):
        def build(self, shape):
            self.bias = H.AlibiBias()

        def call(self, x):
            scores = tf.einsum("btc,bsc->bts", x, x)[:, None]
            return x + tf.einsum("bhts,bsc->btc", tf.nn.softmax(self.bias(scores)), x)

    return Biased()


def cached_attention():
    return Attends(H.CachedMultiHeadAttention(2, 3))


def bidirectional():
    return L.Bidirectional(L.GRU(3, return_sequences=True))


def masked_recurrent():
    words = keras.Input((6,), dtype="int32")
    x = L.Embedding(9, 4, mask_zero=True)(words)
    return keras.Model(words, L.Dense(3)(L.LSTM(4)(x)))


def shared_branches():
    inputs = keras.Input((6,))
    shared = L.Dense(6, activation="relu")
    x = L.Add()([shared(inputs), shared(shared(inputs))])
    return keras.Model(inputs, L.Dense(3)(L.Concatenate()([x, inputs])))


def image_tower(*layers):
    return on_images(lambda: L.Conv2D(4, 3), *layers)


ROWS, NUMBERS = numbers(SEQUENCE), numbers()


def in_sequence(name, why, *layers):
    return honest(name, why, around(*layers, shape=SEQUENCE), ROWS)


def in_features(name, why, *layers):
    return honest(name, why, around(*layers), NUMBERS)


def in_images(name, why, *layers):
    return honest(name, why, image_tower(*layers), images)


def in_tokens(name, why, *layers):
    return honest(name, why, on_tokens(*layers), tokens)


STOCK_HONEST = [
    *(
        honest(name, "each image by itself, with its own draw", on_images(make), images)
        for name, make in AUGMENTATIONS.items()
    ),
    honest(
        "pipeline",
        "keras.layers.Pipeline of augmentations of one image",
        on_images(lambda: L.Pipeline([L.RandomFlip(), L.RandomRotation(0.1)])),
        images,
    ),
    in_features("frozen batch norm", "stored averages", frozen_normalization),
    in_features("frozen nested batch norm", "frozen by its model", frozen_nested),
    in_features("frozen batch norm inside", "a frozen one in a trained layer", Normalized),
    in_images("frozen batch norm on channels", "stored averages", frozen_normalization),
    in_features("unit norm", "UnitNormalization over features", L.UnitNormalization),
    in_features("layer norm", "LayerNormalization over features", L.LayerNormalization),
    in_features("rms norm", "RMSNormalization over features", L.RMSNormalization),
    in_sequence(
        "layer norm of time and features",
        "LayerNormalization(axis=(1, 2))",
        lambda: L.LayerNormalization(axis=(1, 2)),
    ),
    in_images("group norm", "GroupNormalization over pixels", lambda: L.GroupNormalization(2)),
    in_images("instance norm", "GroupNormalization(-1)", lambda: L.GroupNormalization(-1)),
    in_sequence("softmax over time", "Softmax(axis=1)", lambda: L.Softmax(axis=1)),
    in_sequence("attention", "MultiHeadAttention", lambda: Attends(L.MultiHeadAttention(2, 3))),
    in_sequence(
        "grouped attention",
        "GroupQueryAttention",
        lambda: Attends(L.GroupQueryAttention(3, 2, 1)),
    ),
    in_sequence(
        "attention on features",
        "Permute((2, 1)) and back around attention",
        lambda: L.Permute((2, 1)),
        lambda: Attends(L.MultiHeadAttention(1, 2)),
        lambda: L.Permute((2, 1)),
    ),
    in_sequence("swapped twice", "a Dense between two transpositions", SwappedTwice),
    in_sequence("merged positions", "(b t, c) and back", MergedPositions),
    in_sequence("reshape", "Reshape of one example", lambda: L.Reshape((4, 5)), lambda: L.Dense(3)),
    in_features("dropout", "masks of rows of their own", lambda: L.Dropout(0.3, seed=1)),
    in_sequence(
        "dropout of positions",
        "Dropout(noise_shape=(None, 5, 1))",
        lambda: L.Dropout(0.3, noise_shape=(None, 5, 1), seed=1),
    ),
    in_features(
        "dropout shared by rows",
        "one mask for the batch, drawn from no data and of a fixed shape",
        lambda: L.Dropout(0.3, noise_shape=(1, 4), seed=1),
    ),
    in_sequence("spatial dropout", "SpatialDropout1D", lambda: L.SpatialDropout1D(0.3, seed=1)),
    in_features("noise", "GaussianNoise", lambda: L.GaussianNoise(0.2, seed=1)),
    in_features("gaussian dropout", "GaussianDropout", lambda: L.GaussianDropout(0.2, seed=1)),
    in_features("alpha dropout", "AlphaDropout", lambda: L.AlphaDropout(0.2, seed=1)),
    in_sequence("lstm", "LSTM over time", lambda: L.LSTM(4, return_sequences=True)),
    in_sequence("both directions", "Bidirectional GRU", bidirectional),
    in_sequence(
        "recurrent dropout",
        "LSTM with both dropouts",
        lambda: L.LSTM(3, dropout=0.3, recurrent_dropout=0.3, seed=1),
    ),
    in_sequence(
        "dense in TimeDistributed", "each time by itself", lambda: L.TimeDistributed(L.Dense(4))
    ),
    in_sequence(
        "norm in TimeDistributed",
        "LayerNormalization of each time",
        lambda: L.TimeDistributed(L.LayerNormalization()),
    ),
    in_sequence("convolution", "causal Conv1D", lambda: L.Conv1D(4, 3, padding="causal")),
    in_images("convolution stack", "strides, depth, transposed", lambda: L.DepthwiseConv2D(2)),
    in_images("pooling", "MaxPooling2D", L.MaxPooling2D),
    in_images("upsampling", "UpSampling2D and Cropping2D", L.UpSampling2D, L.Cropping2D),
    honest(
        "global pooling",
        "GlobalAveragePooling2D before the head",
        lambda: keras.Sequential(
            [keras.Input(IMAGE), L.Conv2D(4, 3), L.GlobalAveragePooling2D(), L.Dense(CLASSES)]
        ),
        images,
    ),
    in_sequence("prelu", "PReLU with slopes by position", L.PReLU),
    honest("masked lstm", "an LSTM that skips its own padding", masked_recurrent, tokens),
    honest("shared branches", "one layer called three times", shared_branches),
    in_tokens("hub position", "PositionEmbedding", lambda: Residual(H.PositionEmbedding(6))),
    in_tokens("hub sine", "SinePositionEncoding", lambda: Residual(H.SinePositionEncoding())),
    in_tokens("hub rotary", "RotaryEmbedding", H.RotaryEmbedding),
    in_tokens("hub encoder", "TransformerEncoder", lambda: H.TransformerEncoder(8, 2)),
    in_tokens(
        "hub encoder with dropout",
        "TransformerEncoder(dropout=0.2)",
        lambda: H.TransformerEncoder(8, 2, dropout=0.2),
    ),
    in_tokens("hub decoder", "TransformerDecoder", lambda: H.TransformerDecoder(8, 2)),
    in_tokens("hub attention", "CachedMultiHeadAttention", cached_attention),
    in_tokens("hub fourier", "FNetEncoder over an example's tokens", lambda: H.FNetEncoder(8)),
    in_tokens("hub alibi", "AlibiBias on scores of one example", alibi),
    honest("hub masked language head", "gathers by positions", masked_language_head, masked_words),
    in_sequence(
        "cumsum over time", "ops.cumsum(axis=1)", lambda: Function(lambda x: keras.ops.cumsum(x, 1))
    ),
]
