"""How many numbers a step releases, and how much of their noise reaches the gradient."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.carriers import CarrierOptimizer
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.anchor import AnchorSpace
from tf_lowrank_dp.release.coordinates import CoordinateSpace
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.low_rank import LowRankSpace
from tf_lowrank_dp.release.scaled import scales_of
from tf_lowrank_dp.release.space import Normal, PerVariableSpace
from tf_lowrank_dp.release.sparse_low_rank import SparseLowRankSpace

_CLOSED_FORM = (IdentitySpace, CoordinateSpace, LowRankSpace, SparseLowRankSpace)


@dataclasses.dataclass(frozen=True)
class NoiseEnergy:
    """`E|noise|^2` of one step, in units of `(noise_multiplier * l2_norm_clip)^2`.

    That is noise of deviation 1 on what is released, but for blocks with clips of their own.

    Attributes:
        released: number of coordinates that are clipped, noised and used.
        raw: energy of the noise on them; their number, where all deviations are equal.
        lifted: energy of the noise in the lifted gradients, `gradient_scale` included.
        is_estimate: whether `lifted` is not exact: from one draw of noise, or for a basis that is
            not known yet.
    """

    released: int
    raw: float
    lifted: float
    is_estimate: bool


def unit_noise_energy(
    optimizer: DPOptimizer, parameters: Sequence[Parameter], normal: Normal
) -> NoiseEnergy:
    """The energy of unit noise at the present step of an optimizer, from public weights.

    Closed forms of the lift's energy, for a matrix `(m, n)` with carriers of rank `k`, of which
    `m'` rows and `n'` columns are not frozen (masks `M`):

    | released | lift | energy |
    | --- | --- | --- |
    | the gradient, or coordinates of it | itself | their number |
    | `dL` or `dR` alone | `dL R` or `L dR` | `k m'` or `k n'` |
    | `dL` and `dR` | `(I - L L^T) dL R + L dR` | `k (m' + n') - k \\|M L\\|^2` |

    Without frozen rows the last one is `k (m + n - k)`.  Other spaces' lifts are tried on one
    draw; DP-PowerSGD's is not linear, and is tried on noise alone, without a gradient.  For GEP see
    `_of_anchors`: no basis is found.

    Args:
        optimizer: of this library or derived from it; left as it was.
        parameters: of the model.
        normal: public random numbers, for carriers, masks and draws.
    """
    scales = scales_of(parameters, optimizer.gradient_scale)
    with _started(optimizer, parameters):
        space = optimizer.release_space(parameters, normal)
        if isinstance(space, AnchorSpace):
            return _of_anchors(space, optimizer.block_clips(len(space.shapes)), scales)
        subspace = space.refresh()
    if type(space) in _CLOSED_FORM:
        counts = _released_by_variable(space, subspace, normal)
        energies = [_lifted(space, subspace, *pair) for pair in enumerate(counts)]
        released, is_estimate = sum(counts), False
    else:
        released = _count(space.project(list(_random_gradients(parameters, normal)), subspace))
        noise = [normal(shapes) for shapes in space.shapes]
        lifted = space.lift(noise, subspace)
        energies = [float(tf.reduce_sum(tf.square(tensor))) for tensor in lifted]
        is_estimate = True
    total = sum(energy / scale**2 for energy, scale in zip(energies, scales, strict=True))
    return NoiseEnergy(released, float(released), float(total), is_estimate)


def _of_anchors(space: AnchorSpace, clips: Sequence[float], scales: Sequence[float]) -> NoiseEnergy:
    """GEP's noise: `J C_j^2 / sum C^2` on each coordinate of block `j`, of `J` blocks.

    The lift of the embedding is orthonormal, so its noise keeps its energy, and each coordinate of
    the residual is one of the gradient.  Where the variables of a group have different scales
    the embedding's noise counts as if it were spread evenly over them.  All bases are taken to be
    complete: the figures are upper bounds where public gradients have fewer directions.
    """
    total = sum(clip**2 for clip in clips)
    shares = [1.0 if math.isinf(clip) else len(clips) * clip**2 / total for clip in clips]
    sizes = [math.prod(parameter.shape) for parameter in space.parameters]
    energies = [size / scale**2 for size, scale in zip(sizes, scales, strict=True)]
    embedding = sum(
        k * sum(energies[index] for index in group) / sum(sizes[index] for index in group)
        for k, group in zip(space.num_bases, space.groups, strict=True)
    )
    counts, lifted = [sum(space.num_bases), sum(sizes)], [embedding, sum(energies)]
    return NoiseEnergy(
        sum(counts[: len(clips)]),
        sum(share * count for share, count in zip(shares, counts, strict=False)),
        sum(share * energy for share, energy in zip(shares, lifted, strict=False)),
        any(len({scales[index] for index in group}) > 1 for group in space.groups),
    )


@contextlib.contextmanager
def _started(optimizer: DPOptimizer, parameters: Sequence[Parameter]) -> Iterator[None]:
    """Lets an optimizer that has not begun training begin at the present weights, for now."""
    if not isinstance(optimizer, CarrierOptimizer):
        yield
        return
    restore = optimizer.restore_point()
    optimizer.on_start(parameters)
    try:
        yield
    finally:
        restore()


def _released_by_variable(space: PerVariableSpace, subspace, normal: Normal) -> list[int]:
    gradients = _random_gradients(space.parameters, normal)
    return [
        _count([space.pieces(index, gradient, subspace)])
        for index, gradient in enumerate(gradients)
    ]


def _random_gradients(
    parameters: Sequence[Parameter], normal: Normal
) -> Iterator[PerExampleGradient]:
    """Gradients of two examples, one variable at a time: nowhere are both of them zero."""
    return (Materialized(normal([(2, *parameter.shape)])[0]) for parameter in parameters)


def _count(blocks: Sequence[Sequence[PerExampleGradient]]) -> int:
    """Coordinates that are not frozen: those where a random gradient leaves something."""
    total = 0
    for block in blocks:
        for gradient in block:
            used = tf.reduce_any(gradient.materialize() != 0.0, axis=0)
            total += int(tf.math.count_nonzero(used))
    return total


def _lifted(space: PerVariableSpace, subspace, index: int, released: int) -> float:
    """Energy of one variable's lifted noise: a closed form in what is released of it."""
    if not isinstance(space, LowRankSpace) or len(space.piece_shapes(index)) == 1:
        return float(released)
    carriers = subspace[index]
    left = carriers.left
    if isinstance(space, SparseLowRankSpace):
        left = left * carriers.rows[:, None]
    return released - space.ranks[index] * float(tf.reduce_sum(tf.square(left)))
