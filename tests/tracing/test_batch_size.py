"""Where the number of examples is used as a number, and where for shapes alone."""

import keras
import pytest
import tensorflow as tf

from tf_lowrank_dp.tracing.batch_size import is_used_as_number

NUMBERS = {
    "quotient": lambda x: x / tf.cast(tf.shape(x)[0], x.dtype),
    "of a product": lambda x: x / tf.cast(tf.size(x), x.dtype),
    "of keras": lambda x: x / keras.ops.cast(keras.ops.shape(x)[0], x.dtype),
    "condition": lambda x: tf.where(tf.shape(x)[0] > 9, x, -x),
    "branch": lambda x: tf.cond(tf.shape(x)[0] > 9, lambda: x, lambda: -x),
    "after arithmetic": lambda x: x * tf.cast(-(-tf.shape(x)[0] // 8), x.dtype),
    "of a slice of a shape": lambda x: x * tf.cast(tf.slice(tf.shape(x), [0], [1])[0], x.dtype),
    "of part of a shape": lambda x: x * tf.cast(tf.reduce_prod(tf.shape(x)[:1]), x.dtype),
}
SHAPES = {
    "reshape": lambda x: tf.reshape(x, [tf.shape(x)[0], 2, 2]),
    "fill": lambda x: x + tf.fill(tf.shape(x), 2.0),
    "zeros": lambda x: x + tf.zeros([tf.shape(x)[0], 4]),
    "random numbers": lambda x: x + tf.random.stateless_normal(tf.shape(x), [1, 2]),
    "repeated": lambda x: tf.tile(tf.ones([1, 4]), [tf.shape(x)[0], 1]) * x,
    "flattened": lambda x: tf.reshape(x, [-1, tf.reduce_prod(tf.shape(x)[1:])]),
    "length of another axis": lambda x: x / tf.cast(tf.shape(x)[-1], x.dtype),
    "cross entropy": lambda x: tf.nn.softmax_cross_entropy_with_logits(x[:, None], x[:, None]),
    "tensordot": lambda x: tf.tensordot(x[:, None], tf.ones([4, 3]), 1),
}
LAYERS = {
    "transposed": (keras.layers.Conv1DTranspose(2, 3), lambda f, x: f(x[:, :, None])),
    "attention": (keras.layers.MultiHeadAttention(2, 3), lambda f, x: f(x[:, None], x[:, None])),
    "lstm": (keras.layers.LSTM(3), lambda f, x: f(x[:, None])),
    "dropout": (keras.layers.Dropout(0.5), lambda f, x: f(x, training=True)),
}


def is_used(function):
    traced = tf.function(function, autograph=False)
    return is_used_as_number(traced.get_concrete_function(tf.TensorSpec([None, 4])).graph)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_size_in_a_number_or_condition_is_found(name):
    assert is_used(NUMBERS[name])


@pytest.mark.parametrize("name", SHAPES)
def test_a_size_that_only_makes_shapes_is_none(name):
    assert not is_used(SHAPES[name])


@pytest.mark.parametrize("name", LAYERS)
def test_layers_use_sizes_for_shapes_alone(name):
    layer, call = LAYERS[name]
    call(layer, tf.ones([2, 4]))
    assert not is_used(lambda x: call(layer, x))
