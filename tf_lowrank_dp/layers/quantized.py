"""Frozen quantised kernels and tables, beside which adapters and biases are trained.

Keras calls `quantized_call` instead of `call` where a layer is quantised, and computes there the
product, the adapter, the bias and the activation together.  Only the product is needed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import tensorflow as tf

from tf_lowrank_dp._types import LayerMixin
from tf_lowrank_dp.layers.recorder import current_recorder

_REST = {"lora_enabled": False, "bias": None, "activation": None}


class QuantizedCapture(LayerMixin):
    """Has recorded calls of a quantised layer go through `call`, as those of any other layer."""

    def quantized_call(self, *args: Any, **kwargs: Any) -> tf.Tensor:
        if current_recorder() is None:
            return super().quantized_call(*args, **kwargs)
        return self.call(*args, **kwargs)

    def _frozen(self, inputs: tf.Tensor) -> tf.Tensor:
        """What Keras computes from the quantised kernel or table alone."""
        with _without(self, _REST):
            return super().quantized_call(inputs)


@contextmanager
def _without(layer: keras.layers.Layer, attributes: dict) -> Iterator[None]:
    """Sets attributes of a layer, past Keras' tracking, for the length of a call."""
    before = {name: layer.__dict__[name] for name in attributes if name in layer.__dict__}
    layer.__dict__.update({name: attributes[name] for name in before})
    try:
        yield
    finally:
        layer.__dict__.update(before)
