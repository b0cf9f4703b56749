"""Values per example of a loss that was reduced over the batch, found in the traced graph.

`add_loss` and `compute_loss` get scalars: means and sums over the batch, weighted and added up.
Such a scalar is linear in what its reductions reduced, so it is the mean (or sum) of values of
single examples.  What is found here is only what to differentiate: that each value depends on its
own example alone is checked by the probe, as for any other loss.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from tf_lowrank_dp.tracing.random_ops import origin


def separated(loss: tf.Tensor, batch_size: float) -> tf.Tensor | None:
    """The values `(b,)` whose mean over the batch a scalar is; None where it is not understood.

    Args:
        loss: a float scalar in a graph.
        batch_size: the expected batch size, by which terms that are sums over the batch are
            multiplied: with batches of that size training minimises the same objective.
    """
    part = _taken_apart(loss, batch_size)
    return None if part is None else part.as_mean(batch_size).values


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


def _taken_apart(loss: tf.Tensor, batch_size: float) -> _Part | None:
    kind, inputs = loss.op.type, list(loss.op.inputs)
    parts = functools.partial(_parts, batch_size=batch_size)
    if kind in ("Identity", "Neg", "Cast"):
        found = parts(inputs)
        if found is None:
            return None
        values = -found[0].values if kind == "Neg" else tf.cast(found[0].values, loss.dtype)
        return dataclasses.replace(found[0], values=values)
    if kind in ("Mean", "Sum") and inputs[0].op.type == "Pack":
        found = parts(inputs[0].op.inputs)
        count = len(inputs[0].op.inputs) if kind == "Mean" else 1
        return None if found is None else _added([p.values / count for p in found], found)
    if kind in ("Mean", "Sum"):
        return _reduced(inputs[0], kind, batch_size)
    if kind in ("AddV2", "Add", "AddN", "Sub"):
        terms = [term for term in inputs if _public(term) is None]
        found = parts(terms)
        if not found:
            return None
        minus = kind == "Sub" and _public(inputs[1]) is None
        signs = [-1.0 if minus and term is inputs[1] else 1.0 for term in terms]
        return _added([s * p.values for s, p in zip(signs, found, strict=True)], found)
    if kind in ("Mul", "RealDiv", "DivNoNan"):
        return _scaled(loss, batch_size)
    return None


def _parts(scalars: list[tf.Tensor], batch_size: float) -> list[_Part] | None:
    """The parts of scalars, all sums or all means; None if there is one that has none."""
    found = [_taken_apart(scalar, batch_size) for scalar in scalars if scalar.shape.rank == 0]
    known = [part for part in found if part is not None]
    if len(known) < len(scalars):
        return None
    if all(part.is_sum for part in known):
        return known
    return [part.as_mean(batch_size) for part in known]


def _added(values: list[tf.Tensor], parts: list[_Part]) -> _Part:
    return _Part(tf.add_n(values), parts[0].is_sum)


def _reduced(tensor: tf.Tensor, kind: str, batch_size: float) -> _Part | None:
    if tensor.shape.rank == 0:
        return _taken_apart(tensor, batch_size)
    if tensor.shape.rank is None:
        return None
    reduce = tf.reduce_mean if kind == "Mean" else tf.reduce_sum
    return _Part(reduce(tensor, list(range(1, tensor.shape.rank))), kind == "Sum")


def _scaled(loss: tf.Tensor, batch_size: float) -> _Part | None:
    """A product or quotient with something that is no example's."""
    first, second = loss.op.inputs
    if loss.op.type == "Mul" and _public(second) is None:
        first, second = second, first
    factor, part = _public(second), _taken_apart(first, batch_size)
    if factor is None or part is None:
        return None
    if loss.op.type == "Mul":
        return None if factor == "size" else _Part(part.values * second, part.is_sum)
    if factor == "size" or _is_size(first, second):
        size = tf.cast(tf.shape(part.values)[0], second.dtype)
        return _Part(part.values * (size / second), False) if part.is_sum else None
    return _Part(part.values / second, part.is_sum)


def _is_size(total: tf.Tensor, divisor: tf.Tensor) -> bool:
    """Whether a sum is divided by the size of the batch, or of all of it, as a constant."""
    value = _constant(divisor)
    if value is None or total.op.type != "Sum":
        return False
    shape = total.op.inputs[0].shape
    return shape.is_fully_defined() and value in (shape[0], shape.num_elements())


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
        if op.type in ("Shape", "ShapeN", "Size"):
            found = "size"
        elif op.type == "Placeholder":
            if not hasattr(origin(op.outputs[0]), "numpy"):
                return None
        elif op.type != "ReadVariableOp":
            waiting.extend(op.inputs)
    return found
