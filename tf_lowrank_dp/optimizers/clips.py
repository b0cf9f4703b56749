"""How large what is released of an example may be, where that is no number given beforehand."""

from __future__ import annotations

import dataclasses
from typing import Any, Self, TypeAlias

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp.optimizers.checks import check_finite


class _Saved:
    """A frozen dataclass that Keras can save within the config of an optimizer."""

    def get_config(self) -> dict[str, Any]:
        """The settings by name."""
        return dict(vars(self))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """The value with these settings."""
        return cls(**config)


@keras.saving.register_keras_serializable("tf_lowrank_dp")
@dataclasses.dataclass(frozen=True)
class AutomaticClip(_Saved):
    """Each gradient is divided by its norm: no clip norm to choose (Bu et al. 2022).

    `g_b / (|g_b| + stability)` is released of each example, of norm below 1 whatever the loss is
    scaled by, with noise of deviation `noise_multiplier`: a clip norm would only rescale learning
    rates.  With `clipping="per_layer"` it is `1 / sqrt(layers)` times that of each layer.

    Attributes:
        stability: gradients of a smaller norm count less, those of a larger one alike; 0.01 in the
            paper.

    Raises:
        ValueError: `stability` is below 1e-6.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> optimizer = tfdp.DPSGDOptimizer(
    ...     "sgd", l2_norm_clip=tfdp.AutomaticClip(), epsilon=3.0, delta=1e-5)
    >>> optimizer.l2_norm_clip
    AutomaticClip(stability=0.01)
    """

    stability: float = 0.01

    def __post_init__(self) -> None:
        stability = _validate.positive(stability=self.stability)
        if stability < 1e-6:
            raise _validate.error(
                "of at least 1e-6", "Smaller norms are rounding errors.", stability=stability
            )
        object.__setattr__(self, "stability", stability)


@keras.saving.register_keras_serializable("tf_lowrank_dp")
@dataclasses.dataclass(frozen=True)
class QuantileClip(_Saved):
    """The clip norm follows a quantile of the norms of the gradients (Andrew et al. 2021).

    After each step the clip norm is multiplied by `exp(-rate (f - quantile))`, with `f` the
    fraction of examples whose norm was below it, released with noise.  The counts share the one
    Gaussian of a step: they get 1 % of `1 / noise_multiplier^2`, so gradients have 0.5 % more
    noise, and epsilon is what it would be with a number.  With `clipping="per_layer"` each layer
    has a count and a clip norm.  The clip norm is saved and goes on with the optimizer.

    Attributes:
        quantile: fraction of the gradients that shall not be clipped.
        initial: the clip norm at the start.
        rate: how fast it moves.

    Raises:
        ValueError: an attribute is out of its range.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> clip = tfdp.QuantileClip(0.5, initial=1.0)
    >>> optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=clip, epsilon=3.0, delta=1e-5)
    """

    quantile: float = 0.5
    initial: float = 1.0
    rate: float = 0.2

    def __post_init__(self) -> None:
        quantile = _validate.below_one(quantile=self.quantile, remedy="Pass 0.5 for the median.")
        object.__setattr__(self, "quantile", quantile)
        for name in ("initial", "rate"):
            value = _validate.positive(**{name: getattr(self, name)})
            object.__setattr__(self, name, value)
        if not 1e-6 <= self.initial <= 1e6:
            raise _validate.error("between 1e-6 and 1e6", "Scale the loss.", initial=self.initial)


_SAVED = (AutomaticClip.__name__, QuantileClip.__name__)
ClipNorm: TypeAlias = float | AutomaticClip | QuantileClip
"""What optimizers take as `l2_norm_clip`."""


def checked_clip_norm(l2_norm_clip: Any, noise_multiplier: float | None) -> ClipNorm:
    """What was given as `l2_norm_clip`, or its config in a saved file.

    Raises:
        ValueError: it is no positive number, or it is infinite with noise.
    """
    if isinstance(l2_norm_clip, dict) and l2_norm_clip.get("class_name") in _SAVED:
        l2_norm_clip = keras.saving.deserialize_keras_object(l2_norm_clip)
    if isinstance(l2_norm_clip, AutomaticClip | QuantileClip):
        return l2_norm_clip
    clip = _validate.clip_norm(l2_norm_clip=l2_norm_clip)
    check_finite(noise_multiplier, l2_norm_clip=clip)
    return clip


def unit_of(l2_norm_clip: ClipNorm) -> float:
    """Largest norm of an example's gradients in the units in which they are released."""
    return float(l2_norm_clip) if isinstance(l2_norm_clip, float | int) else 1.0
