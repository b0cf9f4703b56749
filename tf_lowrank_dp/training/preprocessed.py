"""What a KerasHub task makes of the rows that were drawn."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.keras_hub import keep_no_words
from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.sampling import PRESENCE
from tf_lowrank_dp.sampling.one_shape import refuse_unknown_shapes
from tf_lowrank_dp.tracing.random_ops import random_numbers_from, seeds_kept
from tf_lowrank_dp.tracing.secret_stream import SecretStream
from tf_lowrank_dp.tracing.traced_part import traced_part
from tf_lowrank_dp.training.function_code import packages_of
from tf_lowrank_dp.training.known_code import is_library_class, is_written_in

_HUB = ("keras_hub", "keras_nlp")
_ROWWISE = (keras.layers.Resizing, keras.layers.Rescaling)  # what KerasHub's converters use
_GIVEN_BY_KERAS = ("build", "quantize")  # wrappers, to each layer


def is_task(model: keras.Model) -> bool:
    """Whether the model is a KerasHub task, which preprocesses its data itself."""
    return hasattr(model, "preprocess_samples")


def preprocessed(model: keras.Model, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The batches with the preprocessor of a KerasHub task applied; presence stays apart.

    Guarantee: what a row becomes depends on it alone and on secret random numbers.  KerasHub's own
    preprocessors, which treat rows alike, see batches; any other sees one row at a time, and keeps
    nothing of it.

    Raises:
        UnsupportedModelError: it draws random numbers in a way that cannot be replaced, or may keep
            something.
        ValueError: it gives rows whose shape is not known.
    """
    if not is_task(model):
        return dataset
    with tf.device("CPU:0"):  # where tf.data runs
        stream = SecretStream()
    seen_whole = _is_stock(model)
    keep_no_words_of(model)
    writes: list[str] = []

    def preprocess(batch: Nested) -> Nested:
        batch = dict(batch)
        presence = batch.pop(PRESENCE)
        with random_numbers_from(stream), seeds_kept():
            made = _samples(model, batch) if seen_whole else _one_by_one(model, batch)
        writes.extend(traced_part(tf.compat.v1.get_default_graph(), 0).writes)
        return {**made, PRESENCE: presence}

    made = dataset.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE)
    if writes:
        raise UnsupportedModelError(
            f"Expected the preprocessor of '{model.name}' to treat each row by itself. Received: "
            f"one with {writes[0]}, which may keep something of a row for others. Write it in "
            "TensorFlow without variables, tables or queues that change; what needs Python do "
            "before `fit`, on each record by itself, with `preprocessor=None`."
        )
    specs = tf.nest.flatten(made.element_spec)
    refuse_unknown_shapes(specs, f"what the preprocessor of '{model.name}' makes, batches")
    return made


def keep_no_words_of(model: keras.Model) -> None:
    """Takes the words away that the tokenizers of a KerasHub task have kept, and keeps no others.

    Guarantee: afterwards no text changes what becomes of another, and none is saved with the model.
    """
    for part in _parts(model):
        keep_no_words(part)


def _is_stock(model: keras.Model) -> bool:
    """Whether all that preprocesses is KerasHub's own.

    Classes, the code of their methods, which decorators and patches exchange, and what objects
    hold: no function that somebody gave them.
    """
    parts = _parts(model)
    known = {id(part) for part in parts}
    for part in parts:
        held = getattr(part, "__dict__", {}).items()
        functions = [f for name, f in held if callable(f) and name not in _GIVEN_BY_KERAS]
        if not (_is_stock_class(type(part)) and all(id(f) in known for f in functions)):
            return False
    return is_written_in(_HUB, model.preprocess_samples)


def _is_stock_class(kind: type) -> bool:
    return (kind in _ROWWISE or packages_of(kind) <= {*_HUB}) and is_library_class(kind)


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
    traced = tf.function(of_row).get_concrete_function(specs)
    spec = tf.nest.map_structure(
        lambda t: tf.TensorSpec(t.shape, t.dtype), traced.structured_outputs
    )
    return tf.map_fn(traced, batch, fn_output_signature=spec)
