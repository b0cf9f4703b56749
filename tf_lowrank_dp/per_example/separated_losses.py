"""Values per example of a loss that was reduced over the batch, found in the traced graph.

`add_loss`, `compute_loss` and loss functions give scalars: means and sums over the batch, weighted
and added up.
Such a scalar is linear in what its reductions reduced, so it is the mean (or sum) of values of
single examples.  What is found here is only what to differentiate: that each value depends on its
own example alone is checked by the probe, as for any other loss.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_lowrank_dp.tracing.random_ops import origin


def separated(
    loss: tf.Tensor, rows: int | None, batch_size: float, strict: bool = False
) -> tf.Tensor | None:
    """The values `(b,)` whose mean over the batch a scalar is; None where it is not understood.

    Args:
        loss: a float scalar in a graph.
        rows: the number of examples, None where it is not known in the graph.
        batch_size: the expected batch size, by which terms that are sums over the batch are
            multiplied: with batches of that size training minimises the same objective.
        strict: whether None is given, too, where terms of weights would be left out, a number may
            be the size of the batch by chance, or the scalar is a sum, whose terms may know it.
    """
    part = _Reader(rows, batch_size, strict).part(loss)
    if part is None or (strict and part.is_sum):
        return None
    return part.as_mean(batch_size).values


def is_switched_off(loss: tf.Tensor) -> bool:
    """Whether a scalar is a product with the constant 0, by which a layer switches its loss off."""
    while loss.op.type in ("Identity", "Neg", "Cast"):
        loss = loss.op.inputs[0]
    factors = map(tf.get_static_value, loss.op.inputs) if loss.op.type == "Mul" else ()
    return any(factor is not None and not np.any(factor) for factor in factors)


@dataclasses.dataclass(frozen=True)
class _Part:
    """What a scalar is made of.

    Attributes:
        values: `(b,)`.
        is_sum: whether the scalar is their sum over the batch, or their mean.
    """

    values: tf.Tensor
    is_sum: bool

    def as_mean(self, batch_size: float) -> _Part:
        return _Part(self.values * batch_size, False) if self.is_sum else self


@dataclasses.dataclass(frozen=True)
class _Reader:
    """Reads how a scalar was computed; arguments are those of `separated`."""

    rows: int | None
    batch_size: float
    strict: bool

    def part(self, loss: tf.Tensor) -> _Part | None:
        """What a scalar is made of; None where it is not understood."""
        kind, inputs = loss.op.type, list(loss.op.inputs)
        if loss.shape.rank != 0:
            return None
        if kind in ("Identity", "Neg", "Cast"):
            found = self.part(inputs[0])
            sign = -1.0 if kind == "Neg" else 1.0
            return found and _Part(sign * tf.cast(found.values, loss.dtype), found.is_sum)
        if kind in ("Mean", "Sum") and inputs[0].op.type == "Pack":
            packed = list(inputs[0].op.inputs)
            share = 1.0 / len(packed) if kind == "Mean" else 1.0
            if all(each.shape.rank == 0 for each in packed):
                return self._sum(packed, [share] * len(packed))
            reduced = [self._reduced(each, kind == "Sum") for each in packed]
            values = [part.values for part in reduced if part is not None]
            if len(values) < len(packed):
                return None
            return _Part(share * tf.add_n(values), kind == "Sum")
        if kind in ("Mean", "Sum"):
            return self._reduced(inputs[0], kind == "Sum")
        if kind in ("AddV2", "Add", "AddN", "Sub"):
            signs = [1.0, -1.0] if kind == "Sub" else [1.0] * len(inputs)
            return self._sum(inputs, signs)
        if kind in ("Mul", "RealDiv", "DivNoNan"):
            return self._scaled(loss)
        return None

    def _sum(self, scalars: Sequence[tf.Tensor], factors: Sequence[float]) -> _Part | None:
        """Of scalars times factors; what depends on no example changes no gradient of them.

        Constants are added to means, which are shown; other such terms, and what is switched off,
        are left out.
        """
        terms = [
            (scalar, factor)
            for scalar, factor in zip(scalars, factors, strict=True)
            if not is_switched_off(scalar)
        ]
        found = [(self.part(scalar), factor) for scalar, factor in terms if _public(scalar) is None]
        parts = [part for part, _ in found if part is not None]
        if len(parts) < len(found) or not parts:
            return None
        public = [scalar for scalar, _ in terms if _public(scalar) is not None]
        if self.strict and any(tf.get_static_value(scalar) is None for scalar in public):
            return None
        if not all(part.is_sum for part in parts):
            parts = [part.as_mean(self.batch_size) for part in parts]
        scaled = [part.values * factor for part, (_, factor) in zip(parts, found, strict=True)]
        total = tf.add_n(scaled)
        for scalar, factor in terms:
            constant = tf.get_static_value(scalar)
            if constant is not None and not parts[0].is_sum:
                total += factor * constant
        return _Part(total, parts[0].is_sum)

    def _reduced(self, tensor: tf.Tensor, is_sum: bool) -> _Part | None:
        """The mean or sum of all, which is the same in any shape: that with the examples first.

        Where their number is not known, it is the one with the longest rows: functions of
        positions, and people, flatten them into the first axis.
        """
        shapes = [tensor]
        while shapes[-1].op.type == "Reshape":
            shapes.append(shapes[-1].op.inputs[0])
        if shapes[-1].shape.rank == 0:
            return self.part(shapes[-1])
        found = [each for each in shapes if each.shape.rank and each.shape[0] == self.rows]
        if not found:
            return None
        values = max(found, key=_row_length)
        reduce = tf.reduce_sum if is_sum else tf.reduce_mean
        return _Part(reduce(values, list(range(1, values.shape.rank))), is_sum)

    def _scaled(self, loss: tf.Tensor) -> _Part | None:
        """A product or quotient with something that is no example's."""
        first, second = loss.op.inputs
        is_product = loss.op.type == "Mul"
        if is_product and _public(second) is None:
            first, second = second, first
        factor = _public(second)
        part = None if factor is None else self.part(first)
        if part is None or (factor == "size" and (is_product or not part.is_sum)):
            return None
        if is_product:
            return _Part(part.values * second, part.is_sum)
        is_size = part.is_sum and self._is_size(first, second)
        if self.strict and is_size and factor != "size" and self.rows == 1:
            return None
        if factor == "size" or is_size:
            rows = tf.cast(tf.shape(part.values)[0], second.dtype)
            return _Part(part.values * (rows / second), False)
        return _Part(part.values / second, part.is_sum)

    def _is_size(self, total: tf.Tensor, divisor: tf.Tensor) -> bool:
        """Whether a sum is divided by the number of examples, or of all summed, as a constant.

        Where that number is a prime that divides no length of the model, it is known by it.
        """
        value, summed = _constant(divisor), _summed(total)
        if value is None or summed is None or not summed.shape.is_fully_defined():
            return False
        rows, elements = summed.shape[0], summed.shape.num_elements()
        if value % rows or elements % value:
            return False
        return rows > 1 or value in (1, elements)


def _row_length(tensor: tf.Tensor) -> float:
    return math.prod(math.inf if length is None else length for length in tensor.shape[1:])


def _summed(total: tf.Tensor) -> tf.Tensor | None:
    """What a sum, scaled perhaps, is the sum of."""
    while total.op.type in ("Mul", "RealDiv", "DivNoNan", "Neg", "Cast", "Identity"):
        inputs = [tensor for tensor in total.op.inputs if _public(tensor) is None]
        if len(inputs) != 1:
            return None
        total = inputs[0]
    return total.op.inputs[0] if total.op.type == "Sum" else None


def _constant(tensor: tf.Tensor) -> np.ndarray | None:
    """The value of a tensor that Keras computes from a constant shape."""
    if tensor.op.type in ("Cast", "Identity", "Prod"):
        value = _constant(tensor.op.inputs[0])
        return None if value is None else (np.prod(value) if tensor.op.type == "Prod" else value)
    return tf.get_static_value(tensor)


def _public(tensor: tf.Tensor) -> str | None:
    """What a tensor is that holds nothing of examples: "size" if it tells their number, "value"."""
    found, waiting, seen = "value", [tensor], set()
    while waiting:
        op = waiting.pop().op
        if op.name in seen:
            continue
        seen.add(op.name)
        if _is_length(op):
            continue
        if op.type in ("Shape", "ShapeN", "Size"):
            found = "size"
        elif op.type == "Placeholder":
            if not hasattr(origin(op.outputs[0]), "numpy"):
                return None
        elif op.type != "ReadVariableOp":
            waiting.extend(op.inputs)
    return found


def _is_length(op: tf.Operation) -> bool:
    """Whether an operation takes the length of another axis than the first from a shape."""
    if op.type != "StridedSlice" or op.inputs[0].op.type != "Shape":
        return False
    begin, end = (tf.get_static_value(tensor) for tensor in op.inputs[1:3])
    return begin is not None and end is not None and begin[0] > 0 and op.outputs[0].shape.rank == 0
