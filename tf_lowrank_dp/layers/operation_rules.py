"""Per-example gradients of tensors that all examples share, by the operation that uses them.

A shared tensor `p`, such as a weight of a user's layer, meets the examples in an operation
`y = op(x, p)`.  From `x` and the gradient `d` of `y` each rule makes the gradients of `p`, one for
each example, as the captures of Keras' layers do.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Callable

import tensorflow as tf

from tf_lowrank_dp.per_example.activations import positions
from tf_lowrank_dp.per_example.convolution import KernelGradient
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.kernel_offsets import Geometry
from tf_lowrank_dp.per_example.lookup import Lookup
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct
from tf_lowrank_dp.tracing.example_axis import Label, Rows


class NoRule(Exception):
    """The gradient of an operation's shared input is not known here."""


@dataclasses.dataclass(frozen=True)
class Use:
    """An operation that takes a shared tensor and tensors with examples.

    Attributes:
        op: the operation.
        slot: which of its inputs is the shared one.
        labels: where the examples are in its inputs.
        rows: where they are in its output.
    """

    op: tf.Operation
    slot: int
    labels: tuple[Label, ...]
    rows: Rows

    @property
    def shared(self) -> tf.Tensor:
        """`p`."""
        return self.op.inputs[self.slot]

    def attribute(self, *names: str) -> bool:
        """Whether one of the flags that the operation has is set."""
        known = {attribute.name for attribute in self.op.op_def.attr}
        return any(name in known and self.op.get_attr(name) for name in names)

    def gradient(self, d: tf.Tensor) -> PerExampleGradient:
        """The per-example gradients of `p` from the gradient of the output."""
        if self.op.type not in RULES:
            raise NoRule
        return RULES[self.op.type](self, d)


def _examples_first(tensor: tf.Tensor, rows: Rows) -> tf.Tensor:
    """`(b, inner, ...)` where several indices belong to an example, else `(b, ...)`."""
    if rows.axis:
        others = [axis for axis in range(tensor.shape.rank) if axis != rows.axis]
        tensor = tf.transpose(tensor, [rows.axis, *others])
    if rows.inner == 1:
        return tensor
    shape = tf.shape(tensor)  # a size of -1 could not be told where there is no example
    return tf.reshape(tensor, tf.concat([[shape[0] // rows.inner, rows.inner], shape[1:]], 0))


def _summed(use: Use, local: tf.Tensor) -> Materialized:
    """Sums over the axes along which `p` was broadcast to a tensor of the output's shape."""
    shape, rank = use.shared.shape, local.shape.rank
    aligned = [1] * (rank - len(shape)) + list(shape)
    lengths = aligned[: use.rows.axis] + aligned[use.rows.axis + 1 :]
    local = _examples_first(tf.cast(local, tf.float32), use.rows)
    skipped = int(use.rows.inner > 1)
    axes = [axis + 1 + skipped for axis, length in enumerate(lengths) if length == 1]
    axes += [1] * skipped
    summed = tf.reduce_sum(local, axes) if axes else local
    return Materialized(tf.reshape(summed, [-1, *shape]))


def _added(use: Use, d: tf.Tensor) -> PerExampleGradient:
    if use.op.type == "BiasAdd" and use.op.get_attr("data_format") != b"NHWC":
        raise NoRule
    return _summed(use, d)


def _subtracted(use: Use, d: tf.Tensor) -> PerExampleGradient:
    return _summed(use, d if use.slot == 0 else -d)


def _multiplied(use: Use, d: tf.Tensor) -> PerExampleGradient:
    other = tf.cast(use.op.inputs[1 - use.slot], tf.float32)
    return _summed(use, tf.cast(d, tf.float32) * other)


def _divided(use: Use, d: tf.Tensor) -> PerExampleGradient:
    d, p = tf.cast(d, tf.float32), tf.cast(use.op.inputs[1], tf.float32)
    if use.slot == 0:
        return _summed(use, d / p)
    return _summed(use, -d * tf.cast(use.op.outputs[0], tf.float32) / p)


def _selected(use: Use, d: tf.Tensor) -> PerExampleGradient:
    chosen = use.op.inputs[0] if use.slot == 1 else tf.logical_not(use.op.inputs[0])
    return _summed(use, tf.where(chosen, d, tf.zeros_like(d)))


def _repeated(use: Use, d: tf.Tensor) -> PerExampleGradient:
    """Of a tensor that is tiled or broadcast: the sum over its copies."""
    shape, out = use.shared.shape, use.op.outputs[0].shape
    aligned = [1] * (len(out) - len(shape)) + list(shape)
    copies = []  # (copies, length) of each axis but that of the examples
    for axis, (length, total) in enumerate(zip(aligned, out, strict=True)):
        if axis != use.rows.axis:
            if total is None or total % length:
                raise NoRule
            copies += [total // length, length]
    own = aligned[use.rows.axis]
    if own != use.rows.inner:
        raise NoRule
    d = _examples_first(tf.cast(d, tf.float32), use.rows)
    d = tf.reshape(d, [-1, own, *copies])
    d = tf.reduce_sum(d, axis=list(range(2, d.shape.rank, 2)))
    order = list(range(2, d.shape.rank))  # the examples' axis of `p` goes back to its place
    order.insert(use.rows.axis, 1)
    return Materialized(tf.reshape(tf.transpose(d, [0, *order]), [-1, *shape]))


def _product(use: Use, d: tf.Tensor) -> PerExampleGradient:
    """Matrix products with leading axes that are broadcast, as an equation."""
    ranks = [tensor.shape.rank for tensor in use.op.inputs[:2]]
    lead = string.ascii_letters[3 : 3 + max(ranks) - 2]
    a = "ba" if use.attribute("transpose_a", "adj_x") else "ab"
    b = "cb" if use.attribute("transpose_b", "adj_y") else "bc"
    terms = [lead[len(lead) - rank + 2 :] + term for rank, term in zip(ranks, (a, b), strict=True)]
    return _contracted(use, terms, f"{lead}ac", d)


def _equation(use: Use, d: tf.Tensor) -> PerExampleGradient:
    inputs, output = use.op.get_attr("equation").decode().replace(" ", "").split("->")
    terms = inputs.split(",")
    if "." in inputs or len(terms) != 2:
        raise NoRule
    if any(len(set(term)) < len(term) for term in [*terms, output]):
        raise NoRule
    return _contracted(use, terms, output, d)


def _contracted(use: Use, terms: list[str], output: str, d: tf.Tensor) -> PerExampleGradient:
    """Of an einsum of `x` and `p`: an outer product where `p` is a matrix `(inputs, outputs)`.

    Args:
        use: the operation.
        terms: letters of its two inputs.
        output: letters of its output.
        d: gradient of that.
    """
    other = 1 - use.slot
    x, kernel = use.op.inputs[other], terms[use.slot]
    of_x = use.labels[other]
    if not isinstance(of_x, Rows) or of_x.inner != use.rows.inner:
        raise NoRule
    example = output[use.rows.axis]
    lengths = dict(zip(kernel, use.shared.shape, strict=True))
    broadcast = {k for k in kernel if lengths[k] == 1}  # summed over, as `p` has one of it
    if terms[other][of_x.axis] != example or example in set(kernel) - broadcast:
        raise NoRule
    # What `keras.ops.matmul` and `tf.tensordot` make of sequences has no static shape.
    known = {letter: length for letter, length in lengths.items() if letter not in broadcast}
    x, d = _of_lengths(x, terms[other], known), _of_lengths(d, output, known)
    of_x_lengths = dict(zip(terms[other], x.shape, strict=True))
    if any(of_x_lengths[k] == 1 and lengths.get(k, 1) != 1 for k in terms[other] if k in output):
        raise NoRule
    inner = "Z" * (use.rows.inner > 1)
    x_letters = example + inner + terms[other].replace(example, "")
    d_letters = example + inner + output.replace(example, "")
    x = _examples_first(tf.cast(x, tf.float32), of_x)
    d = _examples_first(tf.cast(d, tf.float32), use.rows)
    letters = "".join(k for k in kernel if k not in broadcast)
    if not set(letters) <= {*x_letters, *d_letters}:
        raise NoRule
    pair = _pair(x, x_letters, d, d_letters, kernel) if len(letters) == len(kernel) == 2 else None
    if pair is not None:
        return pair
    gradients = tf.einsum(f"{x_letters},{d_letters}->{example}{letters}", x, d)
    return Materialized(tf.reshape(gradients, [-1, *use.shared.shape]))


def _pair(
    x: tf.Tensor, x_letters: str, d: tf.Tensor, d_letters: str, kernel: str
) -> OuterProduct | None:
    """The outer product `(i, o)` of two tensors, one of which has the first letter of a kernel."""
    first, last = kernel[0], kernel[1]
    if first in d_letters:
        x, x_letters, d, d_letters = d, d_letters, x, x_letters
    between = [k for k in x_letters if k != first]
    if first in d_letters or last in x_letters or last not in d_letters or first not in x_letters:
        return None
    if set(between) != set(d_letters) - {last}:
        return None
    sides = [(x, x_letters, first), (d, d_letters, last)]
    moved = [
        positions(_ordered(tensor, letters, "".join(between) + feature))
        for tensor, letters, feature in sides
    ]
    return OuterProduct(*moved)


def _of_lengths(tensor: tf.Tensor, letters: str, known: dict[str, int]) -> tf.Tensor:
    shape = [known.get(k, length) for k, length in zip(letters, tensor.shape, strict=True)]
    return tf.ensure_shape(tensor, shape)


def _ordered(tensor: tf.Tensor, letters: str, wanted: str) -> tf.Tensor:
    if letters == wanted:
        return tensor
    return tf.transpose(tensor, [letters.index(letter) for letter in wanted])


def _gathered(use: Use, d: tf.Tensor) -> PerExampleGradient:
    """Rows of a table by the examples' ids."""
    table, ids = use.shared, use.op.inputs[1]
    along = tf.get_static_value(use.op.inputs[2])
    of_ids = use.labels[1]
    plain = along is not None and int(along) == 0 and not use.op.get_attr("batch_dims")
    if use.slot or not plain or table.shape.rank != 2 or not isinstance(of_ids, Rows):
        raise NoRule
    ids = positions(_examples_first(ids, of_ids)[..., None])[..., 0]
    return Lookup(ids, positions(_examples_first(d, use.rows)), int(table.shape[0]))


def _convolved(use: Use, d: tf.Tensor) -> PerExampleGradient:
    op, kernel = use.op, use.shared
    padding = op.get_attr("padding").decode().lower()
    last = op.get_attr("data_format").decode() in ("NHWC", "NDHWC")
    if use.slot != 1 or use.rows != Rows(0) or padding == "explicit" or not last:
        raise NoRule
    strides, dilation = (tuple(op.get_attr(name))[1:-1] for name in ("strides", "dilations"))
    groups = int(op.inputs[0].shape[-1]) // int(kernel.shape[-2])
    shape = tuple(kernel.shape)
    geometry = Geometry(shape[:-2], strides, dilation, padding, groups, shape)
    return KernelGradient(geometry, op.inputs[0], d)


RULES: dict[str, Callable[[Use, tf.Tensor], PerExampleGradient]] = {
    **dict.fromkeys(["Add", "AddV2", "BiasAdd"], _added),
    **dict.fromkeys(["MatMul", "BatchMatMulV2", "BatchMatMulV3"], _product),
    **dict.fromkeys(["Tile", "BroadcastTo"], _repeated),
    **dict.fromkeys(["Conv2D", "Conv3D"], _convolved),
    "Sub": _subtracted,
    "Mul": _multiplied,
    "RealDiv": _divided,
    "SelectV2": _selected,
    "Einsum": _equation,
    "GatherV2": _gathered,
}
