"""The arithmetic of SimpleRNN, LSTM and GRU cells, split into what is hoisted out of the loop.

A cell computes `input projection + recurrent product` at each position and applies its gates.  The
input projection of all positions is one matrix product.  Where projection and recurrent
product are simply added, both have the same gradient `D (b, t, gates)`, and

    kernel            X^T D          X the layer's inputs
    recurrent kernel  H^T D          H the states, shifted by one position
    bias              sum_t D_t

A GRU with `reset_after` multiplies the candidate's recurrent product by the reset gate, so its
gradient is another one.  It is found as that of a tensor of zeros, `delta (b, t, u)`, which is
added to the product.  Without `reset_after` the candidate's recurrent input is `r * h`.

Dropout of Keras' cells draws one mask for a sequence, or one for each gate, and keeps it for all
positions.  It scales the inputs of the products and stays exact.
"""

from __future__ import annotations

import abc
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tf_lowrank_dp.per_example.activations import broadcast_gradient
from tf_lowrank_dp.per_example.column_blocks import ColumnBlocks
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.outer_product import OuterProduct

# A mask of dropout `(b, features)`, one for each gate, or None.
Masks: TypeAlias = tf.Tensor | list[tf.Tensor] | None


class CellMath(abc.ABC):
    """One call of a Keras cell over a whole sequence.

    Args:
        cell: the Keras cell.
        x: inputs `(b, t, i)`.
        input_masks: of the inputs, `(b, i)` each.
        state_masks: of the recurrent inputs, `(b, u)` each; of a GRU, one for each gate.

    Attributes:
        has_one_gradient: whether both kernels' gradients have the same `D`.
    """

    has_one_gradient = True
    _projected: tf.Tensor
    _previous: tf.Tensor

    def __init__(
        self, cell: keras.layers.Layer, x: tf.Tensor, input_masks: Masks, state_masks: Masks
    ):
        self._cell = cell
        self._units = cell.units
        self._x = x
        self._input_masks, self._state_masks = input_masks, state_masks
        # Their gradients come from the builders, not from the tape.
        self._kernel, self._recurrent_kernel = self._fixed(cell.kernel, cell.recurrent_kernel)
        self._bias = None if cell.bias is None else self._fixed(cell.bias)[0]

    def _fixed(self, *variables: keras.Variable) -> list[tf.Tensor]:
        dtype = self._cell.compute_dtype
        return [tf.stop_gradient(keras.ops.cast(variable, dtype)) for variable in variables]

    @property
    def product_width(self) -> int:
        """Number of columns of `product`."""
        return self._recurrent_kernel.shape[-1]

    def hoisted(self) -> list[tf.Tensor]:
        """What the loop takes from outside: `x W + b`, `(b, t, gates)`, and maybe a delta."""
        projected = _product(self._x, self._kernel, _at_all(self._input_masks))
        bias = self._input_bias()
        return [projected if bias is None else projected + bias]

    def product(self, h: tf.Tensor) -> tf.Tensor:
        """The recurrent product `(b, gates)` at one position from the output before, `(b, u)`."""
        return _product(h, self._recurrent_kernel, self._state_masks)

    def product_transposed(self, d: tf.Tensor) -> tf.Tensor:
        """The gradient `(b, u)` of `h` from that of its product."""
        return _product_transposed(d, self._recurrent_kernel, self._state_masks)

    @abc.abstractmethod
    def gates(self, x: tf.Tensor, product: tf.Tensor, states: list[tf.Tensor]) -> list[tf.Tensor]:
        """The states after one position, output first.

        Args:
            x: the input projection at this position, `(b, gates)`.
            product: the recurrent product.
            states: those before, `(b, u)` each.
        """

    def delta_gradient(self, d: tf.Tensor) -> list[tf.Tensor]:
        """The gradient of the delta at one position, if there is one, from that of the product."""
        return []

    def finish(self, hoisted: list[tf.Tensor], previous: tf.Tensor) -> None:
        """Keeps what the gradients need.

        Args:
            hoisted: the hoisted tensors as they were recorded.
            previous: the output before each position, `(b, t, u)`.
        """
        self._projected, self._previous = hoisted[0], previous

    def builders(self) -> list:
        """For each variable a function from the hoisted tensors' gradients to its gradient."""
        cell = self._cell
        pairs = [
            (cell.kernel, self._kernel_gradient),
            (cell.recurrent_kernel, self._recurrent_gradient),
        ]
        return pairs if cell.bias is None else [*pairs, (cell.bias, self._bias_gradient)]

    def _input_bias(self) -> tf.Tensor | None:
        return self._bias

    def _kernel_gradient(self, d: tf.Tensor, *_: tf.Tensor) -> PerExampleGradient:
        gram_of_d = self.has_one_gradient and OuterProduct(self._previous, d).uses_gram
        return _product_gradient(self._x, d, _at_all(self._input_masks), gram_of_d)

    def _recurrent_gradient(self, d: tf.Tensor, *_: tf.Tensor) -> PerExampleGradient:
        return _product_gradient(self._previous, d, _at_all(self._state_masks))

    def _bias_gradient(self, d: tf.Tensor, *_: tf.Tensor) -> PerExampleGradient:
        return broadcast_gradient(d, self._cell.bias.shape)


class SimpleMath(CellMath):
    """`h = f(x W + b + h' U)`."""

    def gates(self, x: tf.Tensor, product: tf.Tensor, states: list[tf.Tensor]) -> list[tf.Tensor]:
        h = x + product
        return [h if self._cell.activation is None else self._cell.activation(h)]


class LstmMath(CellMath):
    """`c = f c' + i g`, `h = o tanh(c)`, with the gates `i, f, g, o` of `x W + b + h' U`."""

    def gates(self, x: tf.Tensor, product: tf.Tensor, states: list[tf.Tensor]) -> list[tf.Tensor]:
        act, gate = self._cell.activation, self._cell.recurrent_activation
        i, f, g, o = tf.split(x + product, 4, axis=-1)
        c = gate(f) * states[1] + gate(i) * act(g)
        return [gate(o) * act(c), c]


class GruAfterMath(CellMath):
    """`h = z h' + (1 - z) g`, where `g = f(x W_g + b_g + r (h' U_g + b'_g))`."""

    has_one_gradient = False

    def hoisted(self) -> list[tf.Tensor]:
        (projected,) = super().hoisted()
        return [projected, tf.zeros_like(projected[..., : self._units])]

    def product(self, h: tf.Tensor) -> tf.Tensor:
        product = super().product(h)
        return product if self._bias is None else product + self._bias[1]

    def gates(self, x: tf.Tensor, product: tf.Tensor, states: list[tf.Tensor]) -> list[tf.Tensor]:
        gate, gates = self._cell.recurrent_activation, 2 * self._units
        z, r = (gate(part) for part in tf.split(x[:, :gates] + product[:, :gates], 2, axis=-1))
        g = self._cell.activation(x[:, gates:] + r * product[:, gates:])
        return [z * states[0] + (1.0 - z) * g]

    def delta_gradient(self, d: tf.Tensor) -> list[tf.Tensor]:
        return [d[:, 2 * self._units :]]

    def _input_bias(self) -> tf.Tensor | None:
        return None if self._bias is None else self._bias[0]

    def _recurrent_gradient(self, d: tf.Tensor, delta: tf.Tensor) -> PerExampleGradient:
        return super()._recurrent_gradient(self._of_product(d, delta))

    def _bias_gradient(self, d: tf.Tensor, delta: tf.Tensor) -> PerExampleGradient:
        both = tf.stack([d, self._of_product(d, delta)], axis=1)
        return Materialized(tf.reduce_sum(tf.cast(both, tf.float32), axis=2))

    def _of_product(self, d: tf.Tensor, delta: tf.Tensor) -> tf.Tensor:
        """Gradient of `h' U + b'`: that of the projection, except for the candidate."""
        return tf.concat([d[..., : 2 * self._units], delta], axis=-1)


class GruBeforeMath(CellMath):
    """`h = z h' + (1 - z) g`, where `g = f(x W_g + b_g + (r h') U_g)`."""

    has_one_gradient = False

    def __init__(self, *args: Any):
        super().__init__(*args)
        gates, masks = 2 * self._units, self._state_masks
        self._gate_kernel = self._recurrent_kernel[:, :gates]
        self._candidate_kernel = self._recurrent_kernel[:, gates:]
        self._gate_masks = None if masks is None else masks[:2]
        self._candidate_mask = None if masks is None else masks[2]

    @property
    def product_width(self) -> int:
        return 2 * self._units

    def product(self, h: tf.Tensor) -> tf.Tensor:
        return _product(h, self._gate_kernel, self._gate_masks)

    def product_transposed(self, d: tf.Tensor) -> tf.Tensor:
        return _product_transposed(d, self._gate_kernel, self._gate_masks)

    def gates(self, x: tf.Tensor, product: tf.Tensor, states: list[tf.Tensor]) -> list[tf.Tensor]:
        gate, gates = self._cell.recurrent_activation, 2 * self._units
        z, r = (gate(part) for part in tf.split(x[:, :gates] + product, 2, axis=-1))
        candidate = _product(r * states[0], self._candidate_kernel, self._candidate_mask)
        g = self._cell.activation(x[:, gates:] + candidate)
        return [z * states[0] + (1.0 - z) * g]

    def _recurrent_gradient(self, d: tf.Tensor, *_: tf.Tensor) -> PerExampleGradient:
        h, gates = self._previous, 2 * self._units
        product = _product(h, self._gate_kernel, _at_all(self._gate_masks))
        r = self._cell.recurrent_activation(
            (self._projected[..., :gates] + product)[..., self._units :]
        )
        of_gates = _product_gradient(h, d[..., :gates], _at_all(self._gate_masks))
        of_candidate = _product_gradient(r * h, d[..., gates:], _at_all(self._candidate_mask))
        return ColumnBlocks([of_gates, of_candidate], [gates, self._units])


def math_of(layer: keras.layers.RNN) -> type[CellMath] | None:
    """The class for the layer's cell; None if it is not one of Keras' own (or a subclass)."""
    cell = layer.cell
    # A cell that is called by itself as well has another class while it is recorded.
    cell_class = getattr(cell, "captured_class", type(cell))
    if cell_class is keras.layers.SimpleRNNCell:
        return SimpleMath
    if cell_class is keras.layers.LSTMCell:
        return LstmMath
    if cell_class is keras.layers.GRUCell:
        return GruAfterMath if cell.reset_after else GruBeforeMath
    return None


def _at_all(masks: Masks) -> Masks:
    """Masks `(b, features)` for tensors `(b, t, features)`."""
    if masks is None:
        return None
    return [mask[:, None] for mask in masks] if isinstance(masks, list) else masks[:, None]


def _product(x: tf.Tensor, kernel: tf.Tensor, masks: Masks) -> tf.Tensor:
    """`(x * mask) kernel`; with several masks each is for one group of columns."""
    if not isinstance(masks, list):
        return tf.matmul(x if masks is None else x * masks, kernel)
    kernels = tf.split(kernel, len(masks), axis=-1)
    products = [tf.matmul(x * mask, k) for mask, k in zip(masks, kernels, strict=True)]
    return tf.concat(products, axis=-1)


def _product_gradient(
    x: tf.Tensor, d: tf.Tensor, masks: Masks, gram_of_d: bool = False
) -> OuterProduct | ColumnBlocks:
    """Per-example gradient of the kernel in `_product`; `gram_of_d` as of `OuterProduct`."""
    if not isinstance(masks, list):
        return OuterProduct(x if masks is None else x * masks, d, gram_of_d=gram_of_d)
    return ColumnBlocks.of([x * mask for mask in masks], d)


def _product_transposed(d: tf.Tensor, kernel: tf.Tensor, masks: Masks) -> tf.Tensor:
    """The gradient of `x` in `_product`."""
    if not isinstance(masks, list):
        back = tf.matmul(d, kernel, transpose_b=True)
        return back if masks is None else back * masks
    parts = zip(tf.split(d, len(masks), -1), tf.split(kernel, len(masks), -1), masks, strict=True)
    return tf.add_n([tf.matmul(part, k, transpose_b=True) * mask for part, k, mask in parts])
