"""Types of what Keras and TensorFlow leave dynamic, under names that say what is meant."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import keras

    LayerMixin = keras.layers.Layer
    """A class that stands in front of a Keras layer's class: to a type checker it is a layer."""
else:
    LayerMixin = object

Nested: TypeAlias = Any
"""Arrays or tensors whose first axis is the example, in nested lists, tuples and dicts, or a data
set of them; None where there are none."""

Logs: TypeAlias = MutableMapping[str, float] | None
"""What Keras tells its callbacks."""

LossLike: TypeAlias = "str | Callable | keras.losses.Loss | None"
"""What `compile` takes as a loss."""

LearningRate: TypeAlias = "float | keras.optimizers.schedules.LearningRateSchedule"
