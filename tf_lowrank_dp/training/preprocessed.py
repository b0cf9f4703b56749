"""What a KerasHub task makes of the rows that were drawn."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.keras_hub import keep_no_words
from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp._tensorflow import nodes_of
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.sampling import PRESENCE
from tf_lowrank_dp.sampling.one_shape import refuse_unknown_shapes
from tf_lowrank_dp.tracing.random_ops import random_numbers_from, seeds_kept
from tf_lowrank_dp.tracing.secret_stream import SecretStream

_HUB = ("keras_hub", "keras_nlp")
_ROWWISE = (keras.layers.Resizing, keras.layers.Rescaling)  # what KerasHub's converters use
_WRITES = ("LookupTableInsertV2", "LookupTableRemoveV2")  # to a table


def is_task(model: keras.Model) -> bool:
    """Whether the model is a KerasHub task, which preprocesses its data itself."""
    return hasattr(model, "preprocess_samples")


def preprocessed(model: keras.Model, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The batches with the preprocessor of a KerasHub task applied; presence stays apart.

    Guarantee: what a row becomes depends on it alone and on secret random numbers.  KerasHub's own
    preprocessors, which treat rows alike, see batches; any other sees one row at a time.  Byte pair
    tokenizers keep no words, and nothing else is written to a table.

    Raises:
        UnsupportedModelError: it draws random numbers in a way that cannot be replaced, or writes
            to a table.
        ValueError: it gives rows whose shape is not known.
    """
    if not is_task(model):
        return dataset
    with tf.device("CPU:0"):  # where tf.data runs
        stream = SecretStream()
    seen_whole = _is_stock(model)
    for part in _parts(model):
        keep_no_words(part)
    written: set[str] = set()

    def preprocess(batch: Nested) -> Nested:
        batch = dict(batch)
        presence = batch.pop(PRESENCE)
        with random_numbers_from(stream), seeds_kept():
            made = _samples(model, batch) if seen_whole else _one_by_one(model, batch)
        traced = nodes_of(tf.compat.v1.get_default_graph())
        written.update(node.op for node in traced if node.op in _WRITES)
        return {**made, PRESENCE: presence}

    made = dataset.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE)
    if written:
        raise UnsupportedModelError(
            f"Expected the preprocessor of '{model.name}' to make each row of its own. Received: "
            f"one that writes to a table ({', '.join(sorted(written))}), by which rows change one "
            "another. Preprocess without writing to it."
        )
    refuse_unknown_shapes(made, f"what the preprocessor of '{model.name}' makes, batches")
    return made


def _is_stock(model: keras.Model) -> bool:
    """Whether all that preprocesses is KerasHub's own."""
    own = [type(part) for part in _parts(model) if not isinstance(part, _ROWWISE)]
    makers = [*own, type(model).preprocess_samples]
    return all(maker.__module__.partition(".")[0] in _HUB for maker in makers)


def _parts(model: keras.Model) -> list:
    """The preprocessor and what it consists of."""
    preprocessor = getattr(model, "preprocessor", None)
    is_layer = isinstance(preprocessor, keras.Layer)
    return layers_of(preprocessor) if is_layer else [preprocessor] if preprocessor else []


def _samples(model: keras.Model, batch: Nested) -> Nested:
    """The parts of a batch that its rows become."""
    made = model.preprocess_samples(batch["x"], batch.get("y"), batch.get("sample_weight"))
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(made)
    parts = {"x": x, "y": y, "sample_weight": sample_weight}
    return {name: part for name, part in parts.items() if part is not None}


def _one_by_one(model: keras.Model, batch: Nested) -> Nested:
    """The same of one row at a time."""

    def of_row(row: Nested) -> Nested:
        made = _samples(model, tf.nest.map_structure(lambda leaf: leaf[None], row))
        return tf.nest.map_structure(lambda leaf: tf.convert_to_tensor(leaf)[0], made)

    specs = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape[1:], t.dtype), batch)
    made = tf.function(of_row).get_concrete_function(specs).structured_outputs
    spec = tf.nest.map_structure(lambda t: tf.TensorSpec(t.shape, t.dtype), made)
    return tf.map_fn(of_row, batch, fn_output_signature=spec)
