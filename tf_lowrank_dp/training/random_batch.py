"""Random rows in the shape of the data, for the probe."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of, made_by, symbolic_calls
from tf_lowrank_dp._types import Nested

RANGES = ("unit", "normal")
_UNKNOWN_SIZE = 8
_DIGITS = [str(digit) for digit in range(10)]


def random_batch(
    model: keras.Model,
    element_spec: Nested,
    generator: np.random.Generator,
    rows: int,
    sentence_lengths: tuple[int, int],
    numbers: str = RANGES[0],
) -> Nested:
    """Numbers of a range, and strings of words that the model knows.

    The words of an input come from the vocabulary of the lookup layer that reads it, as unknown
    ones would all look the same to it; where that is not known, from those of all lookup layers, or
    they are digits.  A `TextVectorization` that splits its input gets sentences.

    Args:
        model: that will read the strings.
        element_spec: nested `tf.TensorSpec`; unknown sizes are taken as 8.
        generator: of the random numbers.
        rows: number of examples.
        sentence_lengths: lowest and highest number of words.
        numbers: "unit" for numbers in [0, 1) and the integers 0 and 1, "normal" for a normal
            distribution of deviation 2 and the integers 1 and 2.
    """

    def random(path: tuple, spec: tf.TensorSpec) -> tf.Tensor:
        shape = [rows, *(_UNKNOWN_SIZE if size is None else size for size in spec.shape[1:])]
        if spec.dtype == tf.string:
            readers = _readers(model, _input_name(model, path))
            return _random_strings(readers, shape, generator, sentence_lengths)
        if spec.dtype.is_floating and numbers == "unit":
            values: np.ndarray = generator.uniform(0.0, 1.0, shape)
        elif spec.dtype.is_floating:
            values = generator.normal(0.0, 2.0, shape)
        else:
            values = generator.integers(0, 2, shape) + (numbers != "unit")
        return tf.constant(values, spec.dtype)

    values = [random(*leaf) for leaf in keras.tree.flatten_with_path(element_spec)]
    return keras.tree.pack_sequence_as(element_spec, values)


def random_weights(present: Sequence[tf.Tensor], generator: np.random.Generator) -> list[tf.Tensor]:
    """Weights in place of those at hand, of a similar size: none is zero, and none is alike.

    Args:
        present: the trainable weights.
        generator: of the random numbers.
    """
    found = []
    for value in present:
        deviation = float(tf.math.reduce_std(tf.cast(value, tf.float32)))
        fan_in = max(math.prod(value.shape[:-1]), 1)
        scale = deviation or 0.3 / math.sqrt(fan_in)
        added = tf.constant(generator.normal(0.0, scale, value.shape), tf.float32)
        found.append(tf.cast(tf.cast(value, tf.float32) + added, value.dtype))
    return found


def _random_strings(
    readers: Sequence[keras.layers.Layer],
    shape: Sequence[int],
    generator: np.random.Generator,
    sentence_lengths: tuple[int, int],
) -> tf.Tensor:
    def text() -> str:
        reader = readers[int(generator.integers(len(readers)))] if readers else None
        words = [str(word) for word in reader.get_vocabulary() if word] if reader else _DIGITS
        low, high = sentence_lengths if _splits(reader) else (1, 1)
        return " ".join(generator.choice(words, generator.integers(low, high + 1)))

    texts = [text() for _ in range(int(np.prod(shape)))]
    return tf.reshape(tf.constant(texts), shape)


def _splits(reader: keras.layers.Layer) -> bool:
    is_text = isinstance(reader, keras.layers.TextVectorization)
    return is_text and reader.get_config()["split"] is not None


def _input_name(model: keras.Model, path: tuple) -> str | None:
    """The name of the model's input at a path such as `("x", "words")` or `("x", 0)`."""
    inputs = getattr(model, "inputs", None) or []
    key = path[1] if len(path) > 1 else 0
    if isinstance(key, int):
        return inputs[key].name if key < len(inputs) else None
    return key


def _readers(model: keras.Model, name: str | None) -> list[keras.layers.Layer]:
    """The lookup layers that read an input, all of the model where it is not known which do."""
    layers = layers_of(model)
    inside = {
        id(child)
        for layer in layers
        if isinstance(layer, keras.layers.TextVectorization)
        for child in layers_of(layer, include_self=False)
    }
    lookups = [
        layer
        for layer in layers
        if isinstance(layer, (keras.layers.StringLookup, keras.layers.TextVectorization))
        and id(layer) not in inside
    ]
    reading = [
        layer
        for layer in lookups
        for inputs in symbolic_calls(layer)
        if any(made_by(tensor)[0].name == name for tensor in inputs)
    ]
    return reading or lookups
