"""Operations that join the rows of the leading axis, and how they can be hidden.

Every operation takes `(n, m, c)` and joins what lies along `n`; for each of the `m` it does the
same by itself.  With the batch as `n` it mixes examples.  With the two axes swapped around it, it
mixes the positions of one example, which is honest: so the same operation makes both twins.  Where
an operation cannot be swapped, its honest twin is given beside it.
"""

import keras
import tensorflow as tf

L = keras.layers


def length(x):
    return tf.shape(x)[0]


def swapped(function):
    return lambda x: tf.transpose(function(tf.transpose(x, (1, 0, 2))), (1, 0, 2))


def spread(values, x):
    return tf.zeros_like(x) + values


def by_size(x):
    return x / tf.cast(length(x), x.dtype)


def top_two(x):
    return spread(tf.reduce_sum(tf.math.top_k(tf.transpose(x, (1, 2, 0)), 2).values, -1), x)


def most(x):
    return tf.one_hot(tf.argmax(x, 0), length(x), axis=0, dtype=x.dtype)


def gram(x):
    scores = tf.einsum("nmc,kmc->mnk", x, x)
    return tf.einsum("mnk,kmc->nmc", tf.nn.softmax(scores), x)


def one_ahead(x):
    return tf.gather(x, (tf.range(length(x)) + 1) % length(x))


def loop_with_carry(x):
    rows = tf.TensorArray(x.dtype, size=length(x), element_shape=x.shape[1:])

    def body(i, carry, rows):
        carry = 0.5 * carry + x[i]
        return i + 1, carry, rows.write(i, carry)

    start = (0, tf.zeros_like(x[0]), rows)
    return tf.while_loop(lambda i, *_: i < length(x), body, start)[2].stack()


def scan(x):
    return tf.scan(lambda carry, row: tf.tanh(carry + row), x)


def inner_compiled(x):
    compiled = tf.function(lambda rows: rows - tf.reduce_mean(rows, 0), jit_compile=True)
    return compiled(x)


def segments(x):
    rows = tf.math.segment_sum(x, tf.range(length(x)) // 2)
    return tf.repeat(rows, 2, axis=0)[: length(x)]


def vectorized_over_the_other(x):
    other = tf.transpose(x, (1, 0, 2))
    mapped = tf.vectorized_map(lambda rows: rows - tf.reduce_mean(rows, 0), other)
    return tf.transpose(mapped, (1, 0, 2))


def kept_rows(x):
    """The mean of the rows with a positive sum."""
    kept = tf.boolean_mask(x, tf.reduce_sum(x, (1, 2)) > 0)
    return spread(tf.reduce_sum(kept, 0) / (1.0 + tf.cast(tf.shape(kept)[0], x.dtype)), x)


def kept_and_put_back(x):
    """Rows with a positive sum go through a function and back to their places."""
    places = tf.where(tf.reduce_sum(x, (1, 2)) > 0)
    return tf.scatter_nd(places, tf.tanh(tf.gather_nd(x, places)), tf.shape(x, tf.int64))


def number_of_values(x):
    """Features times the number of values that occur."""
    found, _ = tf.unique(tf.reshape(tf.round(8.0 * tf.stop_gradient(x)), [-1]))
    return x * tf.cast(tf.size(found), x.dtype) / 20.0


def unique_and_back(x):
    """Values are made unique, go through a function and back to their places."""
    found, places = tf.unique(tf.reshape(tf.round(8.0 * tf.stop_gradient(x)), [-1]))
    return tf.reshape(tf.gather(tf.tanh(found), places), tf.shape(x))


def own_bucket(x):
    return tf.cast(tf.abs(tf.reduce_sum(x, (1, 2))) * 3.0, tf.int32) % 2


def scattered(x):
    """Rows are added to the bucket of their own number: two rows may meet in one."""
    buckets = tf.scatter_nd(own_bucket(x)[:, None], x, tf.concat([[2], tf.shape(x)[1:]], 0))
    return tf.gather(buckets, own_bucket(x))


def scattered_to_own(x):
    """The same with a bucket for each row and number."""
    places = 2 * tf.range(length(x)) + own_bucket(x)
    shape = tf.concat([[2 * length(x)], tf.shape(x)[1:]], 0)
    return tf.gather(tf.scatter_nd(places[:, None], x, shape), places)


def counted(x):
    """How often a row's bucket occurs."""
    count = tf.math.bincount(own_bucket(x), minlength=2, maxlength=2)
    return x * tf.cast(tf.gather(count, own_bucket(x)), x.dtype)[:, None, None]


def counted_by_row(x):
    values = tf.reshape(tf.cast(tf.abs(x) * 3.0, tf.int32) % 2, (tf.shape(x)[0], -1))
    count = tf.math.bincount(values, minlength=2, maxlength=2, axis=-1)
    return x * tf.cast(count[:, :1], x.dtype)[:, :, None]


def in_numpy(x):
    mean = tf.numpy_function(lambda rows: rows.mean(0, dtype=rows.dtype), [x], x.dtype)
    return spread(tf.ensure_shape(mean, x.shape[1:]), x)


def in_python(x):
    result = tf.py_function(lambda rows: rows - tf.reduce_max(rows, 0), [x], x.dtype)
    return tf.ensure_shape(result, x.shape)


def on_a_statistic(x):
    return tf.cond(tf.reduce_mean(x) > 0, lambda: 2.0 * x, lambda: x - 1.0)


def on_own_statistic(x):
    return tf.where(tf.reduce_mean(x, (1, 2), keepdims=True) > 0, 2.0 * x, x - 1.0)


def switched(x):
    which = tf.cast(tf.reduce_sum(x) * 3.0, tf.int32) % 3
    return tf.switch_case(which, [lambda: x, lambda: 2.0 * x, lambda: -x])


def switched_by_row(x):
    def one(row):
        which = tf.cast(tf.reduce_sum(row) * 3.0, tf.int32) % 3
        return tf.switch_case(which, [lambda: row, lambda: 2.0 * row, lambda: -row])

    return tf.map_fn(one, x)


def mapped(x):
    return tf.map_fn(lambda row: row - tf.reduce_max(row, 0), x)


def vectorized(x):
    return tf.vectorized_map(lambda row: row - tf.reduce_max(row, 0), x)


def with_twin(function):
    return function, swapped(function)


# Name: (hostile, honest).
MIXES = {
    "mean": with_twin(lambda x: spread(tf.reduce_mean(x, 0), x)),
    "max": with_twin(lambda x: spread(tf.reduce_max(x, 0), x)),
    "sum": with_twin(lambda x: spread(tf.reduce_sum(x, 0), x)),
    "softmax": with_twin(lambda x: tf.nn.softmax(x, 0)),
    "cumsum": with_twin(lambda x: tf.cumsum(x, 0)),
    "sort": with_twin(lambda x: tf.sort(x, 0)),
    "roll": with_twin(lambda x: tf.roll(x, 1, 0)),
    "top two": with_twin(top_two),
    "reverse": with_twin(lambda x: tf.reverse(x, [0])),
    "argmax": with_twin(most),
    "matmul": with_twin(gram),
    "size": with_twin(by_size),
    "boolean mask": (kept_rows, kept_and_put_back),
    "unique": (number_of_values, unique_and_back),
    "segment sum": with_twin(segments),
    "scatter": (scattered, scattered_to_own),
    "bincount": (counted, counted_by_row),
    "while loop": with_twin(loop_with_carry),
    "scan": with_twin(scan),
    "map over the other axis": (swapped(mapped), mapped),
    "vectorized map": (vectorized_over_the_other, vectorized),
    "gather": with_twin(one_ahead),
    "numpy function": with_twin(in_numpy),
    "python function": with_twin(in_python),
    "inner XLA": with_twin(inner_compiled),
    "cond": (on_a_statistic, on_own_statistic),
    "switch": (switched, switched_by_row),
}
# What XLA cannot compile.
NOT_COMPILED = {"boolean mask", "unique", "bincount", "numpy function", "python function"}


class Planted(L.Layer):
    """`x` and, where it is seen, what an operation makes of it.

    Args:
        mix: key of `MIXES`.
        hide: one of `HIDES`.
        honest: whether the operation stays within each example.
    """

    def __init__(self, mix, hide, honest):
        super().__init__(name="planted")
        self.function, self.hide, self.honest = MIXES[mix][honest], hide, honest
        self.supports_jit = mix not in NOT_COMPILED

    def build(self, shapes):
        def weight(name, value, trainable=True):
            constant = keras.initializers.Constant(value)
            setattr(self, name, self.add_weight((), constant, trainable=trainable, name=name))

        if self.hide in ("zero gate", "tiny scale"):
            weight("gate", 0.0 if self.hide == "zero gate" else 1e-6)
        if self.hide == "dead relu":
            weight("bias", -100.0)
        if self.hide == "later step":
            weight("step", 0.0, trainable=False)

    def call(self, inputs, training=False):
        """Args: the features `(b, t, c)` and the model's input."""
        x, raw = inputs
        if self.hide in ("zero gate", "tiny scale"):
            return x + self.gate * self.function(x)
        if self.hide == "dead relu":
            return x + tf.nn.relu(self.function(x) + self.bias)
        if self.hide == "stopped gradient":
            return x + tf.stop_gradient(self.function(x))
        if self.hide == "rare values":
            rare = raw > (500 if raw.dtype.is_integer else 3.0)
            flags = tf.reduce_any(tf.reshape(rare, (tf.shape(raw)[0], -1)), 1)
            return tf.where(flags[:, None, None], x + self.function(x), x)
        if self.hide == "training":
            return x + self.function(x) if training else x
        if self.hide == "large batches":
            size = tf.shape(x)[1 if self.honest else 0]
            large = size > (2 if self.honest else 6)
            return tf.cond(large, lambda: x + self.function(x), lambda: x)
        if self.hide == "later step":
            return x + self.function(x) * tf.cast(self.step > 1.5, x.dtype)
        if self.hide == "bytes":
            bytes_ = tf.saturate_cast(x * 32.0 + 128.0, tf.uint8)
            return x + self.function(tf.cast(bytes_, x.dtype) / 32.0 - 4.0)
        if self.hide == "double":
            return x + tf.cast(self.function(tf.cast(x, tf.float64)), x.dtype)
        return x + self.function(x)

    def compute_output_shape(self, shapes):
        return shapes[0]


# Name: what to assign to which variable so that it is seen, None if nothing.
HIDES = {
    "open": None,
    "zero gate": ("gate", 1.0),
    "tiny scale": ("gate", 1.0),
    "dead relu": ("bias", 2.0),
    "stopped gradient": None,
    "rare values": None,
    "training": None,
    "large batches": None,
    "later step": ("step", 2.0),
    "bytes": None,
    "double": None,
}
