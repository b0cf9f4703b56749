"""Checks of the arguments of private optimizers that no single value passes or fails."""

from __future__ import annotations

import math

import keras

from tf_lowrank_dp.gradient_methods.methods import RECORDED


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


def check_inner(inner: keras.optimizers.Optimizer) -> None:
    """Checks an inner optimizer, which would spoil the guarantee with what Keras does to gradients.

    Raises:
        ValueError: it scales the loss or accumulates gradients.
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


def check_centering(
    centering: bool, inner: keras.optimizers.Optimizer, gradient_method: str
) -> None:
    """Checks what centred gradients need: recorded inputs, and biases that are as they are read.

    Raises:
        ValueError: something of it is missing.
    """
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
