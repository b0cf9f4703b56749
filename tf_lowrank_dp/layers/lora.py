"""Low-rank adapters (Hu et al. 2021): `z = x K + s (x A) B` with a frozen kernel `K`.

With `D` the gradient of `z`, the gradients of the factors are again outer products,

    A   X^T (s D B^T)
    B   (s X A)^T D

The kernel is neither merged with the adapter nor differentiated; it may be quantised.
"""

from __future__ import annotations

import string

import keras
import tensorflow as tf

from tf_lowrank_dp.layers.einsum_terms import Terms
from tf_lowrank_dp.layers.recorder import Builders
from tf_lowrank_dp.per_example.activations import positions, with_examples_of
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.outer_product import OuterProduct


def lora_scale(layer: keras.layers.Layer) -> float:
    """`s`."""
    return layer.lora_alpha / layer.lora_rank


def lora_matmul(layer: keras.layers.Dense, x: tf.Tensor) -> tuple[tf.Tensor, Builders]:
    """`s (x A) B` of a Dense layer, and the gradients of `A (i, r)` and `B (r, o)`.

    Args:
        layer: with an adapter.
        x: `(b, ..., i)`.
    """
    scale = lora_scale(layer)
    a, b = (
        keras.ops.cast(v, layer.compute_dtype) for v in (layer.lora_kernel_a, layer.lora_kernel_b)
    )
    u = scale * keras.ops.matmul(x, a)

    def of_a(d: tf.Tensor) -> PerExampleGradient:
        through = scale * tf.matmul(positions(d), b, transpose_b=True)
        return OuterProduct(positions(with_examples_of(d, x)), through)

    def of_b(d: tf.Tensor) -> PerExampleGradient:
        return OuterProduct(positions(with_examples_of(d, u)), positions(d))

    return keras.ops.matmul(u, b), [(layer.lora_kernel_a, of_a), (layer.lora_kernel_b, of_b)]


def lora_einsum(layer: keras.layers.EinsumDense, x: tf.Tensor) -> tuple[tf.Tensor, Builders]:
    """The same for any equation.  Keras' adapter factorises the last axis of the kernel.

    Args:
        layer: with an adapter, for which `split_terms` finds two steps.
        x: `(b, ...)`.
    """
    steps = split_terms(Terms.parse(layer.equation, x.shape.rank))
    assert steps is not None
    first, second, a_is_first = steps
    scale = lora_scale(layer)
    factors = [layer.lora_kernel_a, layer.lora_kernel_b]
    inner, outer = factors if a_is_first else reversed(factors)
    inner_value, outer_value = (keras.ops.cast(v, layer.compute_dtype) for v in (inner, outer))
    u = scale * keras.ops.einsum(first.equation, x, inner_value)
    z = keras.ops.einsum(second.equation, u, outer_value)

    def of_inner(d: tf.Tensor) -> PerExampleGradient:
        back = f"{second.z},{second.kernel}->{second.x}"
        return first.gradient(x, scale * tf.einsum(back, d, outer_value), inner.shape)

    def of_outer(d: tf.Tensor) -> PerExampleGradient:
        return second.gradient(u, d, outer.shape)

    return z, [(inner, of_inner), (outer, of_outer)]


def split_terms(terms: Terms) -> tuple[Terms, Terms, bool] | None:
    """The two steps `x -> u -> z` of an equation whose kernel's last axis is factorised.

    Where the last axis is a feature these are `x A` and `u B`, where it is contracted `x B` and
    `u A`.  For any other equation there are no such steps.

    Returns:
        The terms of both steps, and whether the first one is with `A`; or None.
    """
    last = terms.kernel[-1]
    used = terms.x + terms.kernel + terms.z
    rank = next(letter for letter in string.ascii_letters if letter not in used)
    a, b = terms.kernel[:-1] + rank, rank + last
    if last in terms.z and last not in terms.x:
        u = terms.z.replace(last, rank)
        return Terms(terms.x, a, u), Terms(u, b, terms.z), True
    if last in terms.x and last not in terms.z and set(terms.x) <= set(terms.z + terms.kernel):
        u = terms.x.replace(last, rank)
        return Terms(terms.x, b, u), Terms(u, a, terms.z), False
    return None
