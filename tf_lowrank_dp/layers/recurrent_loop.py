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
    count = len(states)
    length = hoisted[0].shape[1]
    length = tf.shape(hoisted[0])[1] if length is None else length

    def advance(
        x: tf.Tensor, product: tf.Tensor, states: list[tf.Tensor], position: int | tf.Tensor
    ) -> list[tf.Tensor]:
        new = math.gates(x, product, states)
        if mask is not None:
            at = mask[:, position, None]
            new = [tf.where(at, n, old) for n, old in zip(new, states, strict=True)]
        return new

    @tf.custom_gradient
    def loop(*tensors: tf.Tensor) -> tuple:
        # The delta between them is zero: only its gradient matters.
        x, first = _positions_first(tensors[0]), list(tensors[-count:])

        def forwards(
            position: int | tf.Tensor, states: list[tf.Tensor]
        ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
            product = math.product(states[0])
            new = advance(x[position], product, states, position)
            return [new[0], product, *states], new

        widths = [first[0].shape[-1], math.product_width, *(state.shape[-1] for state in first)]
        (outputs, *kept), last = _scan(forwards, first, length, widths, unroll)

        def gradient(d_outputs: tf.Tensor, *d_last: tf.Tensor) -> tuple[tf.Tensor, ...]:
            d_outputs = _positions_first(d_outputs)

            def backwards(
                position: int | tf.Tensor, d_states: Sequence[tf.Tensor]
            ) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
                sources = [x[position], *(array.read(position) for array in kept)]
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(sources)
                    new = advance(sources[0], sources[1], sources[2:], position)
                upstream = [d_states[0] + d_outputs[position], *d_states[1:]]
                found = tape.gradient(new, sources, output_gradients=upstream)
                d_x, d_product, d_output, *d_others = (
                    tf.zeros_like(source) if d is None and n != 2 else d
                    for n, (d, source) in enumerate(zip(found, sources, strict=True))
                )
                through_product = math.product_transposed(d_product)
                d_output = through_product if d_output is None else d_output + through_product
                return [d_x, *math.delta_gradient(d_product)], [d_output, *d_others]

            widths = [tensor.shape[-1] for tensor in tensors[:-count]]
            results, d_first = _scan(backwards, d_last, length, widths, unroll, reverse=True)
            return *(_examples_first(array) for array in results), *d_first

        return (_examples_first(outputs), *last), gradient

    outputs, *last = loop(*hoisted, *states)
    return outputs, last


def _positions_first(tensor: tf.Tensor) -> tf.Tensor:
    """`(b, t, f)` as `(t, b, f)`, of which a position is read without a copy."""
    return tf.transpose(tensor, [1, 0, 2])


def _examples_first(array: tf.TensorArray) -> tf.Tensor:
    """What was written at `t` positions, `(b, f)` each, as `(b, t, f)`."""
    return tf.transpose(array.stack(), [1, 0, 2])


def _scan(
    body: Callable,
    carry: Sequence[tf.Tensor],
    length: int | tf.Tensor,
    widths: Sequence[int],
    unroll: bool,
    reverse: bool = False,
) -> tuple[list[tf.TensorArray], list[tf.Tensor]]:
    """Runs `body` at each position, without a gradient of its own.

    Args:
        body: from a position and the carry to a list of results and the next carry.
        carry: its first value, `(b, u)` each.
        length: number of positions.
        widths: of the results, `(b, width)` each.
        unroll: whether to write out the loop in the graph.
        reverse: whether to start at the last position.

    Returns:
        The results, written at their positions, and the last carry.
    """
    dtype, size = carry[0].dtype, carry[0].shape[0]
    written = [
        tf.TensorArray(dtype, length, element_shape=[size, width], clear_after_read=False)
        for width in widths
    ]

    def at_position(
        step: int | tf.Tensor, written: list[tf.TensorArray], carry: list[tf.Tensor]
    ) -> tuple:
        position = length - 1 - step if reverse else step
        results, new = body(position, carry)
        for tensor, old in zip(new, carry, strict=True):
            tensor.set_shape(old.shape)
        written = [w.write(position, result) for w, result in zip(written, results, strict=True)]
        return step + 1, written, list(new)

    if unroll:
        loop = (0, written, list(carry))
        for _ in range(length):
            loop = at_position(*loop)
    else:
        loop = tf.while_loop(
            lambda step, *_: step < length,
            at_position,
            (tf.constant(0), written, list(carry)),
            maximum_iterations=length,
        )
    return loop[1], loop[2]
