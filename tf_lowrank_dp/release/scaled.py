"""Scales some variables' gradients before they are clipped, and back after the noise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from tf_lowrank_dp.per_example.gradient import ROUNDOFF, PerExampleGradient, PerExampleTensor
from tf_lowrank_dp.per_example.parameter import MatrixView, Parameter
from tf_lowrank_dp.release.held_basis import Anchor
from tf_lowrank_dp.release.noise_energy import NoiseEnergy, Variances
from tf_lowrank_dp.release.space import Block, Normal, ReleaseSpace, Subspace


class ScaledSpace(ReleaseSpace):
    """Another space for gradients that are multiplied by constants; the lift divides by them.

    A scale below 1 makes a variable's gradient count less in the joint norm, at the price
    of more noise on it.

    Args:
        space: the space of the scaled gradients.
        scales: one positive constant for each trainable variable.
    """

    def __init__(self, space: ReleaseSpace, scales: Sequence[float]):
        self._space, self._scales = space, list(scales)
        self.shapes = space.shapes

    def refresh(self) -> Subspace:
        return self._space.refresh()

    def project(
        self, gradients: Sequence[PerExampleGradient], subspace: Subspace
    ) -> Sequence[Block]:
        scaled = [
            gradient if scale == 1.0 else Scaled(gradient, scale)
            for gradient, scale in zip(gradients, self._scales, strict=True)
        ]
        return self._space.project(scaled, subspace)

    def lift(self, released: Sequence[Sequence[tf.Tensor]], subspace: Subspace) -> list[tf.Tensor]:
        lifted = self._space.lift(released, subspace)
        return [tensor / scale for tensor, scale in zip(lifted, self._scales, strict=True)]

    def needed(self, subspace: Subspace) -> list[list[tf.Tensor | None]]:
        return self._space.needed(subspace)

    def noise_energy(
        self, variances: Variances, normal: Normal, subspace: Subspace = None
    ) -> NoiseEnergy:
        """Divided by the squares of the scales; what variables share, as if spread evenly."""
        found = self._space.noise_energy(variances, normal, subspace)
        pairs = zip(found.lifted, self._scales, strict=True)
        mixed = any(len({self._scales[index] for index in group}) > 1 for group in found.shared)
        return dataclasses.replace(
            found,
            lifted=[energy / scale**2 for energy, scale in pairs],
            is_estimate=found.is_estimate or mixed,
        )


def scales_of(parameters: Sequence[Parameter], gradient_scale: Mapping[str, float]) -> list[float]:
    """The scale of each parameter: that of the entry whose key is part of its path, else 1.

    Raises:
        ValueError: a key matches no path, or two keys match the same one.
    """
    scales = [1.0] * len(parameters)
    matched: dict[int, str] = {}
    for part, scale in gradient_scale.items():
        found = [index for index, p in enumerate(parameters) if part in p.path]
        if not found:
            raise ValueError(
                "Expected each key of gradient_scale to be part of the path of a trainable "
                f"variable. Received: {part!r}, among {[p.path for p in parameters]}. Correct it."
            )
        for index in found:
            if index in matched:
                raise ValueError(
                    "Expected the keys of gradient_scale to match different variables. Received: "
                    f"{matched[index]!r} and {part!r} match '{parameters[index].path}'. Make them "
                    "more specific."
                )
            matched[index], scales[index] = part, float(scale)
    return scales


def scaled_anchors(
    gradients: Callable[..., list[Anchor]], scales: Sequence[float]
) -> Callable[..., list[Anchor]]:
    """Gradients of public examples, with those of each variable multiplied by its scale.

    Args:
        gradients: gives the anchors of all variables.
        scales: one positive constant for each trainable variable.
    """

    def scaled(*args: Any) -> list[Anchor]:
        pairs = zip(gradients(*args), scales, strict=True)
        return [(*anchor[:-1], anchor[-1] * scale) for anchor, scale in pairs]

    return scaled


class ScaledTensor(PerExampleTensor):
    """`scale * g_b`, for a positive number or scalar tensor that is public."""

    def __init__(self, tensor: PerExampleTensor, scale: float | tf.Tensor):
        self._tensor, self._scale = tensor, scale

    def squared_norms(self) -> tf.Tensor:
        return self._scale * (self._scale * self._tensor.squared_norms())

    def squared_norm_bounds(self) -> tf.Tensor:
        # One factor at a time: the square of a small scale is 0 in float32.
        bounds = self._scale * self._tensor.squared_norm_bounds()
        return (1.0 + 8.0 * ROUNDOFF) * self._scale * bounds

    def weighted_sum(self, weights: tf.Tensor) -> tf.Tensor:
        return self._scale * self._tensor.weighted_sum(weights)

    def materialize(self) -> tf.Tensor:
        return self._scale * self._tensor.materialize()


class Scaled(ScaledTensor, PerExampleGradient):
    """`scale * g_b` with its images."""

    def __init__(self, gradient: PerExampleGradient, scale: float):
        super().__init__(gradient, scale)
        self._gradient = gradient

    def factors(self) -> tuple[tf.Tensor, tf.Tensor] | None:
        factors = self._gradient.factors()
        return None if factors is None else (factors[0], self._scale * factors[1])

    def right(self, r: tf.Tensor, view: MatrixView) -> PerExampleGradient:
        return Scaled(self._gradient.right(r, view), self._scale)

    def left(self, l: tf.Tensor, view: MatrixView) -> PerExampleGradient:  # noqa: E741
        return Scaled(self._gradient.left(l, view), self._scale)

    def masked(self, mask: tf.Tensor) -> PerExampleGradient:
        return Scaled(self._gradient.masked(mask), self._scale)
