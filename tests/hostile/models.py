"""Small models whose records have full control of inputs and of output gradients.

Where inputs are numbers the loss is linear in the outputs, so that the targets of a record are the
gradients of its outputs.
"""

import keras
import tensorflow as tf

NUMBERS, TOKENS = "numbers", "tokens"
VOCABULARY, CLASSES = 9, 3


def linear_loss(y_true, y_pred):
    """`sum(y_true * y_pred)` of each example."""
    return tf.reduce_sum(y_true * y_pred, list(range(1, y_pred.shape.rank)))


def cross_entropy(y_true, y_pred):
    return keras.losses.sparse_categorical_crossentropy(y_true, y_pred, from_logits=True)


def dense():
    """Kernels that meet one position, without and with biases."""
    inputs = keras.Input((10,))
    x = keras.layers.Dense(12, activation="relu", use_bias=False, name="first")(inputs)
    x = keras.layers.Dense(9, name="second")(x)
    return keras.Model(inputs, keras.layers.Dense(7, name="head")(x))


def sequence():
    """Dense and einsum kernels that meet four positions, whose gradients may cancel."""
    inputs = keras.Input((4, 12))
    x = keras.layers.Dense(14, name="first")(inputs)
    x = keras.layers.LayerNormalization()(x)
    x = keras.layers.EinsumDense("bti,io->bto", (4, 11), bias_axes="o", activation="tanh")(x)
    return keras.Model(inputs, keras.layers.Dense(10, use_bias=False, name="head")(x))


def conv():
    inputs = keras.Input((6, 6, 2))
    x = keras.layers.Conv2D(4, 3, activation="relu", name="first")(inputs)
    x = keras.layers.GroupNormalization(2)(x)
    x = keras.layers.SeparableConv2D(3, 2, strides=2)(x)
    return keras.Model(inputs, keras.layers.Dense(4, name="head")(keras.layers.Flatten()(x)))


def recurrent():
    inputs = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, 6, mask_zero=True)(inputs)
    x = keras.layers.LSTM(4)(x)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, name="head")(x))


def attention():
    inputs = keras.Input((5,), dtype="int32")
    x = keras.layers.Embedding(VOCABULARY, 6, mask_zero=True)(inputs)
    x = keras.layers.MultiHeadAttention(2, 3)(x, x)
    x = keras.layers.Dropout(0.3)(keras.layers.LayerNormalization()(x))
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(inputs, keras.layers.Dense(CLASSES, name="head")(x))


# Name: (function, what the records are, loss).
MODELS = {
    "dense": (dense, NUMBERS, linear_loss),
    "sequence": (sequence, NUMBERS, linear_loss),
    "conv": (conv, NUMBERS, linear_loss),
    "recurrent": (recurrent, TOKENS, cross_entropy),
    "attention": (attention, TOKENS, cross_entropy),
}
