"""What every gradient method takes and gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.tracing.example_axis import Label

Forward: TypeAlias = Callable[[Nested], tuple[tf.Tensor, Nested]]
"""Takes a batch and returns the losses `(b,)` and anything else."""


@dataclasses.dataclass(frozen=True)
class Backward:
    """What a backward pass gives.

    Attributes:
        losses: float32 `(b,)`.
        outputs: whatever else `forward` returned.
        gradients: one `PerExampleGradient` for each trainable variable, in the model's order.
        followed: tensors from which the gradients of several examples at once are made, and where
            the examples are in each, if they are kept apart; none where examples are taken one by
            one.
    """

    losses: tf.Tensor
    outputs: Nested
    gradients: Sequence[PerExampleGradient]
    followed: Sequence[tuple[tf.Tensor, Label]] = ()
