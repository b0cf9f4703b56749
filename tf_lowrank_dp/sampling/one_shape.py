"""Batches from elsewhere whose rows have one shape, whatever other rows of their batch are."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NoReturn

import numpy as np
import tensorflow as tf

from tf_lowrank_dp._tf_data import functions_in, held_by, inputs_of, kind_of
from tf_lowrank_dp.sampling.repeated_rows import BATCHES

_READ_AHEAD = 2  # batches whose shapes are compared before anything is trained
_PADDING = {
    "PaddedBatch": "`.padded_batch()` without padded_shapes",
    "ParseExample": "`parse_example_dataset` or `make_batched_features_dataset` with features of "
    "no stated length",
}
_BRANCH = re.compile(r"cond_(true|false)|while_(body|cond)")
_VARIES = (
    "Expected rows of one public shape. Received: {}. Rows that are padded to the longest of their "
    "batch change with other examples of it, and no clip bounds by how much. Pad all to one "
    "length, `.padded_batch(b, padded_shapes=...)`, `TextVectorization(output_sequence_length="
    "...)`, `.to_tensor(shape=(None, n))`, of sparse ones "
    "`tf.RaggedTensor.from_sparse(x).to_tensor(shape=(None, n))`, sequence_length of a "
    "preprocessor; resize images; where shapes are the same and only not known, `tf.ensure_shape`."
)


def with_one_shape(batches: tf.data.Dataset, source: Any) -> tf.data.Dataset:
    """The same batches, whose axes but the first are known.

    Where the specification does not know them, two batches of a `tf.data.Dataset` are read ahead:
    what differs in them is refused, and later batches that differ end the training.

    Args:
        batches: of dense tensors; others are left to what refuses them.
        source: what they were made of.

    Raises:
        ValueError: the shapes differ.
    """
    leaves = tf.nest.flatten(batches.element_spec)
    dense = [spec for spec in leaves if isinstance(spec, tf.TensorSpec)]
    if len(dense) < len(leaves) or all(_is_known(spec) for spec in dense):
        return batches
    if not isinstance(source, tf.data.Dataset):
        unknown = next(spec for spec in dense if not _is_known(spec))
        _refuse(f"batches of {tuple(unknown.shape)}, of which some axes differ")
    ahead = [tf.nest.flatten(batch) for batch in batches.take(_READ_AHEAD)]
    if not ahead:
        return batches  # what is empty is refused elsewhere
    if len(ahead) < _READ_AHEAD:
        _refuse("one batch alone, of which some axes are not known")
    first, *others = [[tuple(leaf.shape[1:]) for leaf in batch] for batch in ahead]
    for other in others:
        if other != first:
            _refuse(f"batches whose rows have the shapes {first}, and {other}")

    @tf.autograph.experimental.do_not_convert
    def checked(*batch: Any) -> Any:
        fixed = []
        for leaf, shape in zip(tf.nest.flatten(batch), first, strict=True):
            expected = tf.constant(shape, tf.int32)
            same = tf.debugging.assert_equal(
                tf.shape(leaf)[1:], expected, _VARIES.format("a batch with others than the first")
            )
            with tf.control_dependencies([same]):
                fixed.append(tf.ensure_shape(tf.identity(leaf), [leaf.shape[0], *shape]))
        return tf.nest.pack_sequence_as(batch, fixed)

    return batches.map(checked, num_parallel_calls=tf.data.AUTOTUNE)


def refuse_unknown_shapes(specs: Iterable[tf.TypeSpec], what: str) -> None:
    """Refuses batches whose axes but the first are not all known.

    Raises:
        ValueError: says `what` they are.
    """
    for spec in specs:
        if not _is_known(spec):
            _refuse(f"{what} of {tuple(spec.shape)}")


def _refuse(what: str) -> NoReturn:
    raise ValueError(_VARIES.format(what))


def _is_known(spec: tf.TypeSpec) -> bool:
    return spec.shape.rank is not None and spec.shape[1:].is_fully_defined()


def refuse_padding(dataset: tf.data.Dataset, gives_batches: bool = True) -> None:
    """Refuses stages that pad rows to the longest of their batch, whatever comes behind them.

    A map that makes one shape of them again, such as a mean or `tf.image.resize`, has seen zeros of
    which the longest row of the batch decides how many there are.

    Args:
        dataset: a stage.
        gives_batches: whether its elements are batches, whatever has made these: none behind it
            makes batches of them.

    Raises:
        ValueError: with the stage.
    """
    if kind_of(dataset) in _PADDING and not all(
        _is_known(spec)
        for spec in tf.nest.flatten(dataset.element_spec)
        if isinstance(spec, tf.TensorSpec)
    ):
        _refuse(f"{_PADDING[kind_of(dataset)]}, which pads to the longest row of a batch")
    graphs = functions_in(dataset)
    makes_batches = kind_of(dataset) in BATCHES or any(map(_makes_batches, graphs))
    if gives_batches or makes_batches or _holds_batches(dataset):
        for what in filter(None, map(_padding, graphs)):
            _refuse(f"a map of batches by {what}, which pads to the longest row")
    is_given_batches = kind_of(dataset) == "Unbatch" or (gives_batches and not makes_batches)
    for each in inputs_of(dataset):
        refuse_padding(each, is_given_batches)
    for each in filter(None, held_by(dataset)):
        refuse_padding(each, gives_batches)


def _holds_batches(dataset: tf.data.Dataset) -> bool:
    """Whether the elements that a stage is given, or gives, are batches."""
    if kind_of(dataset) in BATCHES:
        return True
    return kind_of(dataset) != "Unbatch" and any(map(_holds_batches, inputs_of(dataset)))


def _makes_batches(graph: tf.Graph) -> bool:
    return any("BatchDataset" in op.type for op in graph.get_operations())


def _padding(graph: tf.Graph) -> str:
    """By what rows of any length become dense ones of a length that is not stated, if they do."""
    if _BRANCH.search(graph.name):  # tokenizers of KerasHub merge words there, each by itself
        return ""
    for op in graph.get_operations():
        if op.type == "RaggedTensorToSparse":
            return "`.to_sparse()`"
        if op.type == "RaggedTensorToTensor" and not _states_lengths(op.inputs[0]):
            return "`.to_tensor()`"
        if op.type == "SparseToDense" and not _states_lengths(op.inputs[1]):
            return "`tf.sparse.to_dense`"
        if op.type.startswith("PaddedBatchDataset") and not all(
            _states_lengths(tensor, first=0) for tensor in op.inputs if tensor.shape.rank == 1
        ):
            return "`.padded_batch()` without padded_shapes"
        if op.type.startswith("ParseSequenceExample"):
            return "`tf.io.parse_sequence_example`"
        if op.type.startswith("ParseExample"):
            shapes = op.get_attr("dense_shapes")
            if not all(tf.TensorShape(s).is_fully_defined() for s in shapes):
                return "`tf.io.parse_example`, whose features have no stated length"
    return ""


def _states_lengths(shape: tf.Tensor, first: int = 1) -> bool:
    """Whether a shape is known, but for the number of rows."""
    if shape.op.type == "SparseCross":  # `HashedCrossing`: of columns, of which each row has all
        return shape.op.get_attr("N") == 0 and all(
            tensor.shape.rank is not None and tensor.shape[1:].is_fully_defined()
            for tensor in shape.op.inputs
        )
    known = tf.get_static_value(shape, partial=True)
    return (
        known is not None
        and np.ndim(known) > 0
        and all(n is not None and n >= 0 for n in known[first:])
    )
