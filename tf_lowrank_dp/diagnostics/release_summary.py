"""What a private step releases and how much noise it adds, before any training."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import keras

from tf_lowrank_dp.diagnostics.noise_energy import unit_noise_energy
from tf_lowrank_dp.diagnostics.table import text_table
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.clips import unit_of
from tf_lowrank_dp.training.train_step import private_optimizer
from tf_lowrank_dp.training.validate_model import validate_model


@dataclasses.dataclass(frozen=True)
class ReleaseSummary:
    """The size of a step's release and of its noise.

    With noise of multiplier `z` and clip `C` each released coordinate gets noise of variance
    `(z C)^2`.  GEP's two blocks have clips `S1`, `S2` of their own: there `C^2 = S1^2 + S2^2`, and
    the variances are `2 (z S1)^2` and `2 (z S2)^2`.  All energies are of sums over a batch: in the
    gradient that the inner optimizer sees they are divided by the square of the expected batch
    size.

    Attributes:
        mechanism: name of the algorithm.
        parameters: number of trainable parameters.
        released: number of coordinates that a step clips, noises and uses; what is frozen does
            not count.
        noised: `E|noise|^2` of what is released, in units of `(z C)^2`; `released` but for GEP.
        lifted: `E|noise|^2` in the lifted gradients, in units of `(z C)^2`.
        is_estimate: whether `lifted` is not exact, but found by lifting one draw, or for GEP bases
            that are spread evenly over variables of different `gradient_scale`.
        noise_variance: `(z C)^2`; None where an optimizer with `epsilon` has not yet calibrated
            `z`, which happens when training starts.
    """

    mechanism: str
    parameters: int
    released: int
    noised: float
    lifted: float
    is_estimate: bool
    noise_variance: float | None

    @property
    def release_energy(self) -> float | None:
        """`E|noise|^2` of what is released, `noised * (z C)^2`; None while `z` is not known."""
        return None if self.noise_variance is None else self.noised * self.noise_variance

    @property
    def lifted_energy(self) -> float | None:
        """`E|noise|^2` in the lifted gradients; None while `z` is not known."""
        return None if self.noise_variance is None else self.lifted * self.noise_variance

    def __str__(self) -> str:
        return _table({self.mechanism: self})


def release_summary(
    model: keras.Model, optimizer: DPOptimizer | None = None, *, seed: int = 0
) -> ReleaseSummary:
    """What a step of a private optimizer releases of a model, and how much noise it adds.

    Computed from the model's present weights and random numbers alone: it sees no data and costs no
    budget.  Nothing is trained, and neither the model nor the optimizer changes.

    Args:
        model: built; compiled with a private optimizer unless `optimizer` is given.
        optimizer: the optimizer to look at, None for the model's.
        seed: of the random numbers that stand for random carriers, masks and draws of noise.

    Returns:
        The summary; `print` shows it as a table.

    Raises:
        NotPrivateError: there is no private optimizer.
        UnsupportedModelError: the model is not built, or cannot be trained privately.
        ValueError: GEP without public data, whose number bounds that of the basis vectors.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> model = keras.Sequential(
    ...     [keras.Input((20,)), keras.layers.Dense(30), keras.layers.Dense(2)])
    >>> optimizer = tfdp.RGPOptimizer("sgd", rank=2, l2_norm_clip=1.0, noise_multiplier=2.0)
    >>> summary = release_summary(model, optimizer)
    >>> summary.parameters, summary.released  # the first kernel counts 2 * (20 + 30)
    (692, 192)
    >>> summary.release_energy  # 192 * (2.0 * 1.0)^2
    768.0
    """
    validate_model(model)
    optimizer = private_optimizer(model) if optimizer is None else optimizer
    parameters = describe_parameters(model)
    energy = unit_noise_energy(optimizer, parameters, NoiseGenerator(seed).normal)
    return ReleaseSummary(
        mechanism=optimizer.algorithm.name,
        parameters=sum(math.prod(parameter.shape) for parameter in parameters),
        released=energy.released,
        noised=energy.raw,
        lifted=math.fsum(energy.lifted),
        is_estimate=energy.is_estimate,
        noise_variance=_noise_variance(optimizer),
    )


def compare_releases(
    model: keras.Model, optimizers: Mapping[str, DPOptimizer], *, seed: int = 0
) -> str:
    """A table of `release_summary` for several optimizers on one model.

    Energies are `E|noise|^2` of a step's sums, in units of `(z C)^2` unless all noise multipliers
    are known.  An estimate is marked with `~`.

    Args:
        model: built; need not be compiled.
        optimizers: by the name in the table.
        seed: see `release_summary`.

    Returns:
        The table as text, one line for each optimizer.

    Raises:
        UnsupportedModelError: the model is not built, or cannot be trained privately.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> model = keras.Sequential(
    ...     [keras.Input((20,)), keras.layers.Dense(30), keras.layers.Dense(2)])
    >>> budget = {"l2_norm_clip": 1.0, "epsilon": 3.0, "delta": 1e-5}
    >>> print(compare_releases(model, {
    ...     "DP-SGD": tfdp.DPSGDOptimizer("sgd", **budget),
    ...     "RGP, rank 2": tfdp.RGPOptimizer("sgd", rank=2, **budget),
    ... }))
    optimizer    parameters  released  noise released  noise in gradient
    DP-SGD       692         692       692             692
    RGP, rank 2  692         192       192             188
    Noise: squared norm expected of a step, over (noise_multiplier * l2_norm_clip)^2.
    """
    return _table({name: release_summary(model, o, seed=seed) for name, o in optimizers.items()})


def _noise_variance(optimizer: DPOptimizer) -> float | None:
    multiplier = optimizer.noise_multiplier
    if multiplier is None:
        multiplier = optimizer.calibrated_noise_multiplier
    if multiplier is None:
        return None
    return (multiplier * unit_of(optimizer.l2_norm_clip)) ** 2 if multiplier else 0.0


def _table(summaries: Mapping[str, ReleaseSummary]) -> str:
    in_units = any(summary.noise_variance is None for summary in summaries.values())
    rows = [("optimizer", "parameters", "released", "noise released", "noise in gradient")]
    for name, summary in summaries.items():
        variance = summary.noise_variance
        if in_units or variance is None:
            variance = 1.0
        rows.append(
            (
                name,
                f"{summary.parameters:,}",
                f"{summary.released:,}",
                f"{summary.noised * variance:,.6g}",
                f"{'~' * summary.is_estimate}{summary.lifted * variance:,.6g}",
            )
        )
    unit = ", over (noise_multiplier * l2_norm_clip)^2" if in_units else ""
    return "\n".join([*text_table(rows), f"Noise: squared norm expected of a step{unit}."])
