"""Random rows in the shape of the data, for the probe."""

from __future__ import annotations

import keras
import numpy as np
import tensorflow as tf

_UNKNOWN_SIZE = 8
_WORDS_OF_A_SENTENCE = 8
_DIGITS = [str(digit) for digit in range(10)]


def random_batch(model: keras.Model, element_spec, generator: np.random.Generator, rows: int):
    """Numbers in [0, 1), integers 0 and 1, and strings of words that the model knows.

    Words come from the vocabularies of the model's lookup layers (those that it does not know would
    all look the same to it), or are digits.  A model that splits texts gets sentences.

    Args:
        model: that will read the strings.
        element_spec: nested `tf.TensorSpec`; unknown sizes are taken as 8.
        generator: of the random numbers.
        rows: number of examples.
    """
    layers = model._flatten_layers()
    lookups = [layer for layer in layers if hasattr(layer, "get_vocabulary")]
    words = [word for layer in lookups for word in layer.get_vocabulary() if word] or _DIGITS
    splits = any(isinstance(layer, keras.layers.TextVectorization) for layer in lookups)
    length = _WORDS_OF_A_SENTENCE if splits else 1

    def random(spec):
        shape = [rows, *(_UNKNOWN_SIZE if size is None else size for size in spec.shape[1:])]
        if spec.dtype == tf.string:
            chosen = generator.choice([str(word) for word in words], [*shape, length])
            return tf.strings.reduce_join(tf.constant(chosen), axis=-1, separator=" ")
        if spec.dtype.is_floating:
            values = generator.uniform(0.0, 1.0, shape)
        else:
            values = generator.integers(0, 2, shape)
        return tf.constant(values, spec.dtype)

    return tf.nest.map_structure(random, element_spec)
