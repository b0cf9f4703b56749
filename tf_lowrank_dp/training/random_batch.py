"""Made-up rows in the shape of the data: random ones for the probe, and those that pad a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of, made_by, symbolic_calls, symbolic_inputs
from tf_lowrank_dp._types import Nested

RANGES = ("unit", "normal")
_WORDS = (keras.layers.StringLookup, keras.layers.TextVectorization)
_TABLES = (keras.layers.Embedding, keras.layers.CategoryEncoding)
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

    The words of an input, and the integers of one that is looked up, come from the vocabulary of
    the lookup layer that reads it, as unknown ones would all look the same to it; where that is
    not known, from those of all lookup layers, or they are digits.  A `TextVectorization` that
    splits its input gets sentences.  In the second range other integers are indices of the table
    that reads them or, as targets, of the model's outputs.

    Args:
        model: that will read them.
        element_spec: nested `tf.TensorSpec`; unknown sizes are taken as 8.
        generator: of the random numbers.
        rows: number of examples.
        sentence_lengths: lowest and highest number of words.
        numbers: "unit" for numbers in [0, 1) and the integers 0 and 1, "normal" for a normal
            distribution of deviation 2 and the integers 1 and 2, where no more is known of them.
    """

    def random(path: tuple, spec: tf.TensorSpec) -> tf.Tensor:
        shape = [rows, *(_UNKNOWN_SIZE if size is None else size for size in spec.shape[1:])]
        if spec.dtype == tf.string:
            readers = _readers(model, path, _WORDS)
            return _random_strings(readers, shape, generator, sentence_lengths)
        if spec.dtype.is_floating and numbers == "unit":
            values: np.ndarray = generator.uniform(0.0, 1.0, shape)
        elif spec.dtype.is_floating:
            values = generator.normal(0.0, 2.0, shape)
        elif known := _known_integers(model, path, spec, numbers):
            values = generator.choice(known, shape)
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


def completed(model: keras.Model, element_spec: Nested) -> Nested:
    """The specification of a batch with the sizes that only the model knows.

    Args:
        model: a built model.
        element_spec: nested `tf.TensorSpec` of `{"x", "y", "sample_weight"}`.
    """

    def complete(path: tuple, spec: tf.TensorSpec) -> tf.TensorSpec:
        known = _symbolic(model, path)
        if known is None or spec.shape.rank is None or spec.shape.rank != len(known.shape):
            return spec
        sizes = zip(spec.shape, known.shape, strict=True)
        shape = [own if size is None else size for size, own in sizes]
        return tf.TensorSpec([spec.shape[0], *shape[1:]], spec.dtype)

    found = [complete(*leaf) for leaf in keras.tree.flatten_with_path(element_spec)]
    return keras.tree.pack_sequence_as(element_spec, found)


def with_known_words(model: keras.Model, batch: Nested, presence: tf.Tensor) -> Nested:
    """The batch, whose absent rows hold an entry of the vocabulary where look-ups refuse others.

    Args:
        model: that will read the rows.
        batch: nested tensors `(b, ...)`.
        presence: float32 `(b,)`, 0 for an absent row.
    """

    def fill(path: tuple, leaf: tf.Tensor) -> tf.Tensor:
        kinds = _WORDS[:1] if leaf.dtype == tf.string else (keras.layers.IntegerLookup,)
        looked_up = leaf.dtype == tf.string or leaf.dtype.is_integer
        readers = _readers(model, path, kinds) if looked_up and path[0] == "x" else []
        strict = [reader for reader in readers if reader.num_oov_indices == 0]
        if not strict:
            return leaf
        [word, *_] = _entries(strict[:1]) or [b""]
        present = tf.reshape(presence > 0.0, [-1] + [1] * (leaf.shape.rank - 1))
        return tf.where(present, leaf, tf.constant(word, leaf.dtype))

    found = [fill(*leaf) for leaf in keras.tree.flatten_with_path(batch)]
    return keras.tree.pack_sequence_as(batch, found)


def _known_integers(
    model: keras.Model, path: tuple, spec: tf.TensorSpec, numbers: str
) -> Sequence[int]:
    """What an integer of the data can be; empty where nothing tells."""
    if path[0] == "x":
        lookups = _readers(model, path, (keras.layers.IntegerLookup,))
        if lookups:
            return _entries(lookups)
    if numbers == "unit":  # 0 and 1 are classes, positions and ids whatever else is an integer
        return ()
    if path[0] == "x":
        tables = _readers(model, path, _TABLES)
        sizes = [table.get_config().get("input_dim") or table.num_tokens for table in tables]
        return range(min(sizes)) if all(sizes) and sizes else range(256 * (spec.dtype == tf.uint8))
    output = _symbolic(model, path)
    if path[0] != "y" or output is None or len(output.shape) < 2 or spec.shape.rank is None:
        return ()
    is_index = spec.shape.rank == len(output.shape) - 1 or spec.shape[-1] == 1
    return range(output.shape[-1]) if is_index and (output.shape[-1] or 0) > 1 else ()


def _entries(readers: Sequence[keras.layers.Layer]) -> list:
    """The entries of the first vocabulary that all have in common; of the first if there are none.

    Without masks and entries for what is unknown.
    """
    with tf.init_scope():
        vocabularies = [reader.get_vocabulary(include_special_tokens=False) for reader in readers]
    return [e for e in vocabularies[0] if all(e in v for v in vocabularies)] or vocabularies[0]


def _symbolic(model: keras.Model, path: tuple) -> keras.KerasTensor | None:
    """The model's input or output at a path such as `("x", "words")` or `("y", 0)`, if known."""
    inputs = symbolic_inputs(model)
    if inputs is None or path[0] not in ("x", "y"):
        return None
    flat = model.inputs if path[0] == "x" else model.outputs
    nested = inputs if path[0] == "x" else flat
    key = path[1] if len(path) > 1 else 0
    if isinstance(key, int):
        return flat[key] if key < len(flat) else None
    if isinstance(nested, dict):
        return nested.get(key)
    names = [t.name for t in flat] if path[0] == "x" else list(model.output_names)
    return flat[names.index(key)] if key in names else None


def _readers(model: keras.Model, path: tuple, kinds: tuple[type, ...]) -> list[keras.layers.Layer]:
    """The layers of some kinds that read an input, all of the model where it is not known which."""
    layers = layers_of(model)
    inside = {
        id(child)
        for layer in layers
        if isinstance(layer, keras.layers.TextVectorization)
        for child in layers_of(layer, include_self=False)
    }
    found = [layer for layer in layers if isinstance(layer, kinds) and id(layer) not in inside]
    given = _symbolic(model, path)
    reading = [
        layer
        for layer in found
        for inputs in symbolic_calls(layer)
        if given is not None and any(made_by(t)[0].name == made_by(given)[0].name for t in inputs)
    ]
    return reading or found
