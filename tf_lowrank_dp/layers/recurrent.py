"""Capture for recurrent layers with Keras' own cells: SimpleRNN, LSTM, GRU."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from tf_lowrank_dp._types import LayerMixin, Nested
from tf_lowrank_dp.layers.recorder import current_recorder
from tf_lowrank_dp.layers.recurrent_cells import math_of
from tf_lowrank_dp.layers.recurrent_loop import run
from tf_lowrank_dp.layers.registry import register_capture
from tf_lowrank_dp.per_example.parameter import AddedBias, MatrixView
from tf_lowrank_dp.tracing.example_axis import Label, Rows


class _RecurrentCapture(LayerMixin):
    """The loop of a recurrent layer, with what its kernels' gradients need outside of it.

    Tensors recorded inside of a `tf.while_loop` cannot be differentiated from outside.  So the
    inputs are projected before the loop, as one matrix product, and recorded there.
    """

    captures_children = True  # the cell's variables are recorded here

    @classmethod
    def can_capture(cls, layer: keras.layers.RNN) -> bool:
        """Only Keras' own cells, without further variables and with dropout rates below 1."""
        if math_of(layer) is None or layer.stateful:
            return False
        if max(layer.cell.dropout, layer.cell.recurrent_dropout) >= 1.0:
            return False
        known = {id(v) for v in (layer.cell.kernel, layer.cell.recurrent_kernel, layer.cell.bias)}
        return all(id(v) in known for v in layer.trainable_variables)

    @classmethod
    def matrix_views(cls, layer: keras.layers.RNN) -> list[tuple[keras.Variable, MatrixView]]:
        """Kernel `(i, gates * u)` and recurrent kernel `(u, gates * u)`."""
        kernels = (layer.cell.kernel, layer.cell.recurrent_kernel)
        return [(kernel, MatrixView.of(tuple(kernel.shape))) for kernel in kernels]

    @classmethod
    def added_biases(cls, layer: keras.layers.RNN) -> list[tuple[keras.Variable, AddedBias]]:
        """One bias for the sum of both products; a GRU with `reset_after` has one for each."""
        cell = layer.cell
        rows = (None, None) if cell.bias is None or len(cell.bias.shape) == 1 else (0, 1)
        kernels = (cell.kernel, cell.recurrent_kernel)
        return [(k, AddedBias(cell.bias, row=row)) for k, row in zip(kernels, rows, strict=True)]

    def inner_loop(
        self,
        sequences: tf.Tensor,
        initial_state: Nested,
        mask: Nested,
        training: bool | None = False,
    ) -> tuple[tf.Tensor, tf.Tensor, list[tf.Tensor]]:
        recorder = current_recorder()
        if recorder is None:
            return super().inner_loop(sequences, initial_state, mask, training=training)
        x = tf.cast(sequences, self.cell.compute_dtype)
        states = keras.tree.flatten(initial_state)
        mask = None if mask is None else tf.cast(keras.tree.flatten(mask)[0], tf.bool)
        if self.go_backwards:
            x, mask = (None if v is None else tf.reverse(v, [1]) for v in (x, mask))
        masks = _dropout_masks(self.cell, x, states, training)
        kind = math_of(self)
        assert kind is not None
        math = kind(self.cell, x, *masks)
        read: list[tuple[tf.Tensor, Label]] = []
        hoisted = recorder.watch(self.name, math.hoisted(), math.builders(), read)
        outputs, states_after = run(math, hoisted, states, mask, self.unroll)
        previous = tf.concat([states[0][:, None], outputs[:, :-1]], axis=1)
        math.finish(hoisted, previous)
        read.append((previous, Rows(0)))
        outputs = _shown(outputs, mask, self.zero_output_for_mask)
        return outputs[:, -1], outputs, states_after


@register_capture(keras.layers.RNN)
class RNN(_RecurrentCapture, keras.layers.RNN):
    """`keras.layers.RNN` of one of Keras' own cells with per-example gradients."""


@register_capture(keras.layers.SimpleRNN)
class SimpleRNN(_RecurrentCapture, keras.layers.SimpleRNN):
    """`keras.layers.SimpleRNN` with per-example gradients."""


@register_capture(keras.layers.LSTM)
class LSTM(_RecurrentCapture, keras.layers.LSTM):
    """`keras.layers.LSTM` with per-example gradients."""


@register_capture(keras.layers.GRU)
class GRU(_RecurrentCapture, keras.layers.GRU):
    """`keras.layers.GRU` with per-example gradients, `reset_after` or not."""


def _dropout_masks(
    cell: keras.layers.Layer, x: tf.Tensor, states: Sequence[tf.Tensor], training: bool | None
) -> tuple:
    """Keras draws them before the loop, one for a sequence or one for each gate."""
    if not training:
        return None, None
    masks = cell.get_dropout_mask(x[:, 0]), cell.get_recurrent_dropout_mask(states[0])
    return tuple(None if m is None else tf.nest.map_structure(tf.stop_gradient, m) for m in masks)


def _shown(outputs: tf.Tensor, mask: tf.Tensor | None, zero_output: bool) -> tf.Tensor:
    """What Keras returns at masked positions: zeros, or the output before, which starts at zero."""
    if mask is None:
        return outputs
    begun = mask if zero_output else tf.cumsum(tf.cast(mask, tf.int32), axis=1) > 0
    return tf.where(begun[..., None], outputs, tf.zeros([], outputs.dtype))
