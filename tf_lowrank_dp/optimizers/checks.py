"""Checks of the arguments of private optimizers that no single value passes or fails."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp.gradient_methods.methods import RECORDED

_MOST_SCALE = 1e6
NOT_PRIVATE = (
    "Expected a private training step. Received: an ordinary one, in which this optimizer would "
    "update the weights with gradients that are neither clipped nor noised. Call "
    "tfdp.make_private(model) before model.fit (after loading a model as well), or use "
    "tfdp.PrivateTrainer in a custom training loop."
)
ALREADY_PRIVATE = (
    "Expected an ordinary Keras optimizer inside. Received: {}, which is private itself. Pass its "
    "inner optimizer."
)
_ELSEWHERE = {
    "num_microbatches": "Leave it out: each example is clipped by itself, at little cost. "
    "tfdp.make_private(model, microbatch_size=...) bounds memory.",
    "unroll_microbatches": "Leave it out: there is no loop over microbatches.",
    "gradient_accumulation_steps": "Leave it out, and give fit the whole batch_size; "
    "tfdp.make_private(model, microbatch_size=...) bounds memory.",
    "dp_sum_query": "Pass l2_norm_clip and noise_multiplier.",
    "l2_clip": "It is called l2_norm_clip.",
    "learning_rate": "Give it to the inner optimizer: DPSGDOptimizer(keras.optimizers.SGD(0.1), "
    "...).",
}
_ELSEWHERE["momentum"] = _ELSEWHERE["nesterov"] = _ELSEWHERE["learning_rate"]
"""What is asked for by the names of TensorFlow Privacy, and where it is here."""


def refuse_foreign_arguments(names: Iterable[str]) -> None:
    """Refuses arguments of TensorFlow Privacy's optimizers that these do not have.

    Raises:
        ValueError: says what to write instead.
    """
    for name in _ELSEWHERE:
        if name in names:
            raise ValueError(
                "Expected the arguments of this private optimizer. Received: "
                f"{name}, one of TensorFlow Privacy's. {_ELSEWHERE[name]}"
            )


def check_finite(noise_multiplier: float | None, **named: float) -> None:
    """Checks that one clip norm, given by its name, is finite where there is noise.

    Raises:
        ValueError: it is not.
    """
    [(name, clip)] = named.items()
    if math.isinf(clip) and noise_multiplier != 0:
        raise ValueError(
            f"Expected a finite {name}, to which the noise is scaled. Received: "
            f"{name}=inf with noise_multiplier={noise_multiplier}. Choose a finite clip; "
            "inf is for comparisons without privacy and requires noise_multiplier=0."
        )


def check_inner(
    inner: keras.optimizers.Optimizer, centering: bool = False, gradient_method: str = "auto"
) -> None:
    """Checks an inner optimizer, which would spoil the guarantee with what Keras does to gradients.

    Raises:
        ValueError: it scales the loss or accumulates gradients; or, with centering, averages
            weights, or goes with a gradient method that does not record the inputs of layers.
    """
    if isinstance(inner, keras.optimizers.LossScaleOptimizer) or inner.loss_scale_factor:
        raise ValueError(
            "Expected an inner optimizer without loss scaling. Received: one with it. Clipping "
            "and noise act on true gradients in float32, which do not underflow: remove it."
        )
    if inner.gradient_accumulation_steps:
        raise ValueError(
            "Expected gradient_accumulation_steps=None on the inner optimizer. Received: "
            f"{inner.gradient_accumulation_steps}. It would pay for noise once per microbatch. "
            "Use tfdp.make_private(model, microbatch_size=...) to bound memory instead."
        )
    if centering and gradient_method not in RECORDED:
        raise ValueError(
            f"Expected a gradient_method of {RECORDED} with centering=True. Received: "
            f"{gradient_method!r}, which does not record the inputs of layers. Leave it out."
        )
    if centering and inner.use_ema:
        raise ValueError(
            "Expected an inner optimizer without use_ema with centering=True. Received: one with "
            "it, which would average biases before they follow their kernels. Leave one of them "
            "out."
        )


def check_scales(gradient_scale: Mapping[str, float]) -> None:
    """Refuses scales with which squares of ordinary gradients vanish or overflow in float32.

    Raises:
        ValueError: a scale is no number between 1e-6 and 1e6.
    """
    for part, scale in gradient_scale.items():
        named: dict[str, Any] = {f"gradient_scale[{part!r}]": scale}
        if not 1 / _MOST_SCALE <= _validate.positive(**named) <= _MOST_SCALE:
            raise ValueError(
                f"Expected gradient_scale[{part!r}] between {1 / _MOST_SCALE:g} and "
                f"{_MOST_SCALE:g}. Received: {scale}. Squares of so scaled gradients vanish or "
                "overflow in float32, so they could not be clipped. Pass a milder scale."
            )
