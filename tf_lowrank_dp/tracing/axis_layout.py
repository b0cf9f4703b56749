"""What operations that rearrange tensors do to the axis of the examples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tf_lowrank_dp.tracing.example_axis import Label, Operation, Public, Rows, reshaped

Rule = Callable[[Operation], Label]


def of_input(number: int, rule: Rule) -> Rule:
    """A rule of operations that treat the rows of this input alike.

    Where others hold examples, such as the lengths by which rows are split, each may act on all.
    """

    def checked(o: Operation) -> Label:
        others = (label for index, label in enumerate(o.labels) if index != number)
        return o.unknown if any(isinstance(label, Rows) for label in others) else rule(o)

    return checked


def shape_change(o: Operation) -> Label:
    """Reshapes, with the order of the elements kept."""
    label, before, after = o.labels[0], o.shape(0), o.out_shape()
    if not isinstance(label, Rows) or before is None or after is None:
        return o.unknown
    return reshaped(label, before, after, o.size) or o.unknown


def transpose(o: Operation) -> Label:
    label, order = o.labels[0], o.value(1)
    if not isinstance(label, Rows) or order is None:
        return o.unknown
    return Rows([axis % len(order) for axis in order.tolist()].index(label.axis), label.inner)


def blocks(o: Operation) -> Label:
    """Pixels that are apart as batches one after the other, and back: around dilated kernels."""
    label, out = o.labels[0], o.out_shape()
    if not isinstance(label, Rows) or out is None or label.axis:
        return o.unknown
    return label if o.spans(label, out[0]) else o.unknown


def concatenation(o: Operation) -> Label:
    """Along another axis, or whole batches one after the other."""
    out, axis = o.out_shape(), o.value(len(o.labels) - 1)
    held = {label for label in o.labels if isinstance(label, Rows)}
    if out is None or axis is None or len(held) != 1:
        return o.unknown
    [label] = held
    along = int(axis) % len(out)
    for index in range(len(o.labels) - 1):
        is_public = isinstance(o.labels[index], Public)
        if is_public and (along == label.axis or not _fits(o, index, len(out) - label.axis)):
            return o.unknown
        shape = o.shape(index)
        if along == label.axis and (shape is None or not o.spans(label, shape[along])):
            return o.unknown
    return label


def _fits(o: Operation, index: int, from_last: int) -> bool:
    return not o.tells_rows_apart(index, from_last)


def stack(o: Operation) -> Label:
    out, held = o.out_shape(), {label for label in o.labels if isinstance(label, Rows)}
    if out is None or len(held) != 1:
        return o.unknown
    [label] = held
    public = [i for i, other in enumerate(o.labels) if isinstance(other, Public)]
    if any(not _fits(o, i, len(out) - 1 - label.axis) for i in public):
        return o.unknown
    axis = o.op.get_attr("axis") % len(out)
    return Rows(label.axis + (axis <= label.axis), label.inner)


def unstack(o: Operation) -> Label:
    label, shape = o.labels[0], o.shape(0)
    if not isinstance(label, Rows) or shape is None:
        return o.unknown
    axis = o.op.get_attr("axis") % len(shape)
    return o.unknown if axis == label.axis else Rows(label.axis - (axis < label.axis), label.inner)


def part(index: int, axis_index: int) -> Rule:
    """Parts of a tensor along an axis: whole batches, or of another axis."""

    def rule(o: Operation) -> Label:
        label, shape, axis = o.labels[index], o.shape(index), o.value(axis_index)
        if not isinstance(label, Rows) or shape is None or axis is None:
            return o.unknown
        if int(axis) % len(shape) != label.axis:
            return label
        outs = [o.out_shape(n) for n in range(len(o.op.outputs))]
        whole = all(out is not None and o.spans(label, out[label.axis]) for out in outs)
        return label if whole else o.joined

    return rule


def strided_slice(o: Operation) -> Label:
    """Slices: those of the examples' axis must keep all of it, or whole batches."""
    label, shape = o.labels[0], o.shape(0)
    return _sliced(o, label, shape) if isinstance(label, Rows) and shape is not None else o.unknown


def strided_slice_grad(o: Operation) -> Label:
    """Zeros of the shape that was sliced, with what was cut out in its place."""
    label, known, of_shape = o.labels[4], o.value(0), o.shape(0)
    if not isinstance(label, Rows) or of_shape is None or of_shape[0] is None:
        return o.unknown
    lengths = (None,) * of_shape[0] if known is None else tuple(int(length) for length in known)
    axes = [Rows(axis, label.inner) for axis in range(len(lengths))]
    return next((rows for rows in axes if _sliced(o, rows, lengths) == label), o.unknown)


def _sliced(o: Operation, label: Rows, shape: tuple[int | None, ...]) -> Label:
    """The label of a slice of a tensor of this label and shape."""
    begin, end, strides = (o.value(index) for index in (1, 2, 3))
    if strides is None:
        return o.unknown
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask")
    masks = {name: o.op.get_attr(name) for name in names}
    shrink = o.op.get_attr("shrink_axis_mask")
    in_axis, out_axis, count = 0, 0, len(strides)
    for bit in range(count):
        if masks["ellipsis_mask"] >> bit & 1:
            later = range(bit + 1, count)
            new = sum(masks["new_axis_mask"] >> later_bit & 1 for later_bit in later)
            skipped = len(shape) - in_axis - (len(later) - new)
            if in_axis <= label.axis < in_axis + skipped:
                return Rows(out_axis + label.axis - in_axis, label.inner)
            in_axis, out_axis = in_axis + skipped, out_axis + skipped
        elif masks["new_axis_mask"] >> bit & 1:
            out_axis += 1
        elif in_axis == label.axis:
            if shrink >> bit & 1 and _takes_each(o):
                return o.unknown
            if shrink >> bit & 1 or strides[bit] != 1:
                return o.joined
            from_start, to_end = (masks[name] >> bit & 1 for name in ("begin_mask", "end_mask"))
            if (begin is None or end is None) and not (from_start and to_end):
                return o.unknown
            low = None if from_start or begin is None else int(begin[bit])
            high = None if to_end or end is None else int(end[bit])
            if low in (None, 0) and high is None:
                return Rows(out_axis, label.inner)
            length = shape[in_axis]
            if length is None:
                return o.unknown
            low, high, _ = slice(low, high).indices(length)
            whole = o.spans(label, low) and high > low and o.spans(label, high - low)
            return Rows(out_axis, label.inner) if whole else o.joined
        else:
            in_axis, out_axis = in_axis + 1, out_axis + (not shrink >> bit & 1)
    return Rows(label.axis - in_axis + out_axis, label.inner)


def _takes_each(o: Operation) -> bool:
    """Whether it is one of as many as there are examples: a loop over them in Python, unrolled."""
    takers = [op for op in o.op.inputs[0].consumers() if op.type == "StridedSlice"]
    return len(takers) >= o.size


def slice_of(o: Operation) -> Label:
    label, shape, out = o.labels[0], o.shape(0), o.out_shape()
    if not isinstance(label, Rows) or shape is None or out is None:
        return o.unknown
    whole = shape[label.axis] is not None and out[label.axis] == shape[label.axis]
    return label if whole else o.unknown


def padded(o: Operation) -> Label:
    label, paddings = o.labels[0], o.value(1)
    if not isinstance(label, Rows) or paddings is None:
        return o.unknown
    return label if not np.any(paddings[label.axis]) else o.unknown


def broadcast(o: Operation) -> Label:
    label, shape, out = o.labels[0], o.shape(0), o.out_shape()
    if not isinstance(label, Rows) or shape is None or out is None:
        return o.unknown
    return Rows(label.axis + len(out) - len(shape), label.inner)


def gather(o: Operation) -> Label:
    """Rows of a table by the examples' ids, or of each example's own axes."""
    params, indices = o.labels[:2]
    along, order, shape, of_indices = o.value(2), o.value(1), o.shape(0), o.shape(1)
    if along is None or shape is None or of_indices is None:
        return o.unknown
    axis, batch_dims = int(along) % max(len(shape), 1), o.op.get_attr("batch_dims")
    if isinstance(params, Public) and isinstance(indices, Rows):
        if batch_dims:
            return o.unknown
        return Rows(axis + indices.axis, indices.inner)
    if isinstance(params, Rows) and params.axis == axis:
        in_order = order is not None and np.array_equal(order, np.arange(shape[axis] or 0))
        return params if in_order and not batch_dims else o.joined
    if isinstance(params, Rows) and isinstance(indices, Rows):
        return params if params == indices and params.axis < batch_dims else o.joined
    if batch_dims or not isinstance(params, Rows):
        return o.unknown
    return Rows(params.axis + (params.axis > axis) * (len(of_indices) - 1), params.inner)


def gather_nd(o: Operation) -> Label:
    """Elements by indices of the first axes; examples in random order are joined with others."""
    params, indices = o.labels[:2]
    if isinstance(params, Rows) and isinstance(indices, Public) and indices.random:
        return o.joined
    return o.unknown


def segments(o: Operation) -> Label:
    """Sums, means and the like of the rows that have one id."""
    label, order, shape = o.labels[0], o.value(1), o.shape(0)
    if isinstance(o.labels[1], Rows):
        return o.joined  # Examples may have the same id.
    if not isinstance(label, Rows) or order is None or shape is None:
        return o.unknown
    if label.axis >= order.ndim:
        return Rows(label.axis - order.ndim + 1, label.inner)
    if order.ndim > 1:
        return o.unknown
    rows = np.arange(len(order))
    count = int(np.sum(order == 0))
    if count and label.inner % count == 0 and np.array_equal(order, rows // count):
        found, out = Rows(0, label.inner // count), o.out_shape()
        is_sorted = len(o.labels) == 2  # as many segments as there are, which no shape tells
        known = is_sorted or (out is not None and o.spans(found, out[0]))
        return found if known else o.unknown
    owners = rows // label.inner % o.size
    shared = any(len(set(owners[order == number])) > 1 for number in set(order.tolist()))
    return o.joined if shared else o.unknown


def lookup(o: Operation) -> Label:
    """Of a variable's rows by the examples' ids."""
    label = o.labels[1]
    return label if isinstance(label, Rows) else o.unknown


def one_hot(o: Operation) -> Label:
    label, axis = o.labels[0], o.op.get_attr("axis")
    if not isinstance(label, Rows):
        return o.unknown
    return Rows(label.axis + (0 <= axis <= label.axis), label.inner)


def counts(o: Operation) -> Label:
    """Row by row for matrices, of all for vectors."""
    label, weights, shape = o.labels[0], o.labels[-1], o.shape(0)
    if not isinstance(label, Rows) or shape is None or o.differs_by_row(len(o.labels) - 1):
        return o.unknown
    if isinstance(weights, Rows) and weights != label:
        return o.unknown
    return label if len(shape) == 2 and label.axis == 0 else o.joined
