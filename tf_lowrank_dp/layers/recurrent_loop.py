"""The loop of a recurrent layer, with its gradient written out as a second loop.

Automatic differentiation of a `tf.while_loop` keeps every intermediate result of every position in
a list.  Here the forward loop keeps the states and the recurrent products, and the loop backwards
computes the gates again from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_lowrank_dp.layers.recurrent_cells import CellMath


def run(
    math: CellMath,
    hoisted: Sequence[tf.Tensor],
    states: Sequence[tf.Tensor],
    mask: tf.Tensor | None,
    unroll: bool,
) -> tuple[tf.Tensor, list[tf.Tensor]]:
    """Runs a cell over the positions; where the mask is False the states stay as they are.

    Args:
        math: what the cell computes.
        hoisted: its input projections `(b, t, gates)`, and its delta `(b, t, u)` if it has one.
        states: the initial ones, `(b, u)` each.
        mask: boolean `(b, t)`.
        unroll: whether to write out the loops in the graph.

    Returns:
        The output after each position, `(b, t, u)`, and all states after the last position.
    """
    masks = [] if mask is None else [tf.transpose(mask)[..., None]]
    count = len(states)

    def advance(x, product, states, mask):
        new = math.gates(x, product, states)
        if mask:
            new = [tf.where(mask[0], n, old) for n, old in zip(new, states, strict=True)]
        return new

    def forwards(at, states):
        x, *mask = at
        product = math.product(states[0])
        states = advance(x, product, states, mask)
        return [product, *states], states

    @tf.custom_gradient
    def loop(*tensors):
        # The delta between them is zero: only its gradient matters.
        x, first = _time_first(tensors[0]), list(tensors[-count:])
        widths = [math.product_width, *(state.shape[-1] for state in first)]
        (product, *after), last = _scan(forwards, [x, *masks], first, widths, unroll)
        before = [
            tf.concat([state[None], stack[:-1]], axis=0)
            for state, stack in zip(first, after, strict=True)
        ]

        def backwards(at, d_states):
            x, product, d_output, *rest = at
            states, mask = rest[:count], rest[count:]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch([x, product, *states])
                new = advance(x, product, states, mask)
            d_x, d_product, *d_before = tape.gradient(
                new,
                [x, product, *states],
                output_gradients=[d_states[0] + d_output, *d_states[1:]],
                unconnected_gradients="zero",
            )
            d_before[0] += math.product_transposed(d_product)
            return [d_x, *math.delta_gradient(d_product)], d_before

        def gradient(d_outputs, *d_last):
            elements = [x, product, _time_first(d_outputs), *before, *masks]
            widths = [tensor.shape[-1] for tensor in tensors[:-count]]
            results, d_first = _scan(backwards, elements, d_last, widths, unroll, reverse=True)
            return *(_time_first(d) for d in results), *d_first

        return (_time_first(after[0]), *last), gradient

    outputs, *last = loop(*hoisted, *states)
    return outputs, last


def _time_first(tensor: tf.Tensor) -> tf.Tensor:
    """`(b, t, f)` to `(t, b, f)`, and back."""
    return tf.transpose(tensor, [1, 0, 2])


def _scan(
    body: Callable,
    elements: Sequence[tf.Tensor],
    carry: Sequence[tf.Tensor],
    widths: Sequence[int],
    unroll: bool,
    reverse: bool = False,
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """Runs `body` over the first axis of `elements`, without a gradient of its own.

    Args:
        body: from one slice of each element and the carry to a list of results and the next carry.
        elements: `(t, b, ...)` each.
        carry: its first value, `(b, u)` each.
        widths: of the results, `(b, width)` each.
        unroll: whether to write out the loop in the graph.
        reverse: whether to start at the last slice; the results keep the order of the elements.

    Returns:
        The results, `(t, b, width)` each, and the last carry.
    """
    if unroll:
        slices = list(zip(*(tf.unstack(element) for element in elements), strict=True))
        results = []
        for at in reversed(slices) if reverse else slices:
            result, carry = body(at, carry)
            results.append(result)
        results = reversed(results) if reverse else results
        return [tf.stack(column) for column in zip(*results, strict=True)], list(carry)

    length = elements[0].shape[0]
    length = tf.shape(elements[0])[0] if length is None else length
    dtype, size = carry[0].dtype, carry[0].shape[0]
    written = [tf.TensorArray(dtype, length, element_shape=[size, width]) for width in widths]

    def at_position(step, written, carry):
        position = length - 1 - step if reverse else step
        results, new = body([element[position] for element in elements], carry)
        for tensor, old in zip(new, carry, strict=True):
            tensor.set_shape(old.shape)
        written = [w.write(position, result) for w, result in zip(written, results, strict=True)]
        return step + 1, written, new

    _, written, carry = tf.while_loop(
        lambda step, *_: step < length,
        at_position,
        (tf.constant(0), written, list(carry)),
        maximum_iterations=length,
    )
    return [array.stack() for array in written], list(carry)
