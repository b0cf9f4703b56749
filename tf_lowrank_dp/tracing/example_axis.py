"""Where the examples are in each tensor of a traced forward pass, whatever the numbers are.

A walk through the graph follows the axis of the examples from the inputs to the losses.  An
operation that joins rows, such as a mean over the batch, is found behind a gate of zero, a branch
that is rarely taken or a constant that a callback raises later.  What the walk does not know it
says so, and the probe has to do.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp._types import Nested


@dataclasses.dataclass(frozen=True)
class Label:
    """What a tensor holds of the examples."""


@dataclasses.dataclass(frozen=True)
class Public(Label):
    """Nothing.

    Attributes:
        even: whether its values are equal, or independent with one law, along every axis, so that
            they do not tell rows apart.
        random: whether it is computed from random numbers that are not those of the rows.
    """

    even: bool = False
    random: bool = False


@dataclasses.dataclass(frozen=True)
class Rows(Label):
    """One example at each index of an axis, `(index // inner) % size` of the batch.

    Attributes:
        axis: the axis.
        inner: how many neighbouring indices belong to one example.
    """

    axis: int
    inner: int = 1


@dataclasses.dataclass(frozen=True)
class Joined(Label):
    """Several examples at once.

    Attributes:
        by: name and type of the operation that joined them.
    """

    by: str


@dataclasses.dataclass(frozen=True)
class Unknown(Label):
    """Something that the walk cannot tell.

    Attributes:
        by: name and type of the operation.
        likely: where the examples are if the operation kept them apart, by the length of the axes;
            what joins them after that is found nevertheless.
    """

    by: str
    likely: Rows | None = None


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation with what its rule needs.

    Attributes:
        op: the operation.
        labels: of its inputs.
        size: number of examples.
    """

    op: tf.Operation
    labels: tuple[Label, ...]
    size: int

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.op.type} '{self.op.name}'"

    @property
    def joined(self) -> Joined:
        """The label of an output in which this operation joined examples."""
        return Joined(self.name)

    @property
    def unknown(self) -> Unknown:
        """The label of an output that the walk cannot follow."""
        return Unknown(self.name)

    def shape(self, index: int) -> tuple[int | None, ...] | None:
        """Static shape of an input, see `shape_of`."""
        return shape_of(self.op.inputs[index])

    def rank(self, index: int) -> int | None:
        """Number of axes of an input; None where it is not known."""
        return self.op.inputs[index].shape.rank

    def out_shape(self, index: int = 0) -> tuple[int | None, ...] | None:
        """Static shape of an output, see `shape_of`."""
        return shape_of(self.op.outputs[index])

    def value(self, index: int) -> np.ndarray | None:
        """Static value of an input; None where it is not known."""
        return static_value(self.op.inputs[index])

    def spans(self, label: Rows, count: int | None) -> bool:
        """Whether `count` neighbouring indices of the axis hold all examples equally often."""
        return count is not None and count % (self.size * label.inner) == 0

    def tells_rows_apart(self, index: int, axis: int) -> bool:
        """Whether a public input differs along an output's axis, counted from its last."""
        label, shape = self.labels[index], self.shape(index)
        if not isinstance(label, Public) or label.even or shape is None:
            return not isinstance(label, Public) or not label.even
        return axis <= len(shape) and shape[-axis] != 1

    def differs_by_row(self, index: int) -> bool:
        """Whether a public input's first axis is as long as the examples' and tells them apart."""
        label, shape = self.labels[index], self.shape(index)
        if not isinstance(label, Public) or label.even:
            return False
        if shape is None or shape[:1] == (None,):
            return True
        return bool(shape and shape[0] and shape[0] % self.size == 0)


def static_value(tensor: tf.Tensor) -> np.ndarray | None:
    """The value of a tensor that is computed from constants, such as the order of axes."""
    value = tf.get_static_value(tensor)
    if value is not None:
        return np.asarray(value)
    if tensor.op.type not in _OF_CONSTANTS:
        return None
    inputs = [static_value(source) for source in tensor.op.inputs]
    if tensor.op.type == "StridedSlice" and inputs[0] is None:
        inputs[0] = _known_lengths(tensor.op.inputs[0])
    known = [value for value in inputs if value is not None]
    if len(known) < len(inputs):
        return None
    found = _executed(tensor.op, known)[tensor.value_index].numpy()
    return None if np.any(found == _NOT_KNOWN) else found


def _known_lengths(tensor: tf.Tensor) -> np.ndarray | None:
    """A shape of which some lengths are known; None where the tensor is none."""
    shape = tensor.op.inputs[0].shape if tensor.op.type == "Shape" else tf.TensorShape(None)
    if shape.rank is None:
        return None
    lengths = [_NOT_KNOWN if length is None else length for length in shape]
    return np.asarray(lengths, tensor.dtype.as_numpy_dtype)


def _executed(op: tf.Operation, inputs: Sequence[np.ndarray]) -> list[tf.Tensor]:
    """The outputs of an operation for these inputs."""
    definition, remaining = op.op_def, iter(inputs)
    arguments: dict[str, object] = {}
    for argument in definition.input_arg:
        count = argument.number_attr and op.get_attr(argument.number_attr)
        values = list(itertools.islice(remaining, count)) if count else next(remaining)
        arguments[_RENAMED.get(argument.name, argument.name)] = values
    inferred = {
        name for each in definition.input_arg for name in (each.type_attr, each.number_attr)
    }
    for attribute in definition.attr:
        if attribute.name not in inferred:
            name = _RENAMED.get(attribute.name, attribute.name)
            arguments[name] = op.get_attr(attribute.name)
    with tf.init_scope():
        return tf.nest.flatten(getattr(tf.raw_ops, op.type)(**arguments))


_NOT_KNOWN = np.iinfo(np.int32).min  # a length
_RENAMED = {"dim": "axis"}  # by tf.raw_ops
# With which the axes and lengths are computed that other operations take.
_OF_CONSTANTS = """
Add AddV2 BroadcastGradientArgs Cast ConcatV2 ExpandDims FloorDiv FloorMod GreaterEqual Identity
InvertPermutation Mul Neg Pack Range Reshape StridedSlice Sub
""".split()


def shape_of(tensor: tf.Tensor) -> tuple[int, ...] | None:
    """The static shape, with None for lengths that are not known; None without a known rank."""
    return None if tensor.shape.rank is None else tuple(tensor.shape)


def worst(labels: Sequence[Label]) -> Label | None:
    """The label that decides whatever an operation does: joined, then unknown; else None."""
    for label in labels:
        if isinstance(label, Joined):
            return label
    unknown = [label for label in labels if isinstance(label, Unknown)]
    return Unknown(unknown[0].by) if unknown else None


def likely_rows(tensor: tf.Tensor, size: int) -> Rows | None:
    """The only axis as long as a multiple of the number of examples; None if there are others."""
    lengths = shape_of(tensor) or ()
    found = [axis for axis, length in enumerate(lengths) if length and length % size == 0]
    return Rows(found[0], lengths[found[0]] // size) if len(found) == 1 else None


def reshaped(label: Rows, before: tuple, after: tuple, size: int) -> Rows | None:
    """The label behind a change of shape; None where no single axis holds the examples."""
    if None in before or None in after:
        return None
    inner = label.inner * math.prod(before[label.axis + 1 :])
    for axis, length in enumerate(after):
        behind = math.prod(after[axis + 1 :])
        if length > 1 and behind and inner % behind == 0:
            if (behind * length) % (inner * size) == 0:
                return Rows(axis, inner // behind)
    return None


def size_unlike(model: keras.Model, specs: Nested) -> int:
    """A number of examples that no other axis could be mistaken for.

    Args:
        model: which will be traced with as many.
        specs: nested `tf.TensorSpec` of a batch.
    """
    shapes = [spec.shape for spec in tf.nest.flatten(specs)]
    lengths = {n for shape in shapes if shape.rank for n in shape[1:] if n}
    lengths |= {n for variable in model.variables for n in variable.shape}
    unrolled = any(isinstance(layer, UNROLLED) for layer in layers_of(model))
    sizes = _FEW if unrolled else _SIZES
    return next((n for n in sizes if all(length % n for length in lengths)), sizes[0])


def unmistakable_size(least: int, graph: tf.Graph, most: int | None = None) -> int:
    """A prime number of examples of which no length in a graph is a multiple; 1 if there is none.

    Args:
        least: the number wanted; the next larger prime is taken, or a smaller one if that is too
            large.
        graph: traced with an unknown number of examples.
        most: the largest number allowed; None for any.
    """
    shapes = [tensor.shape for op in graph.get_operations() for tensor in op.outputs]
    lengths = {n for shape in shapes if shape.rank for n in shape if n}
    limit = 8 * least + 1000 if most is None else most
    tried = [*range(least, limit + 1), *range(min(least, limit), 1, -1)]
    primes = (n for n in tried if n > 1 and all(n % k for k in range(2, math.isqrt(n) + 1)))
    return next((n for n in primes if all(length % n for length in lengths)), 1)


_SIZES = (1009, 1013, 1019, 1021, 1031, 1033, 1039)
_FEW = (31, 37, 41, 43, 47, 53, 59)
# Keras traces them once for each example where it knows how many there are.
UNROLLED = (keras.layers.RandomElasticTransform,)
