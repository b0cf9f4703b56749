"""How many numbers a step releases, and how much of their noise reaches the gradient."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import tensorflow as tf

from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.carriers import CarrierOptimizer
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.coordinates import CoordinateSpace
from tf_lowrank_dp.release.identity import IdentitySpace
from tf_lowrank_dp.release.low_rank import LowRankSpace
from tf_lowrank_dp.release.scaled import scales_of
from tf_lowrank_dp.release.space import Normal, PerVariableSpace
from tf_lowrank_dp.release.sparse_low_rank import SparseLowRankSpace

_CLOSED_FORM = (IdentitySpace, CoordinateSpace, LowRankSpace, SparseLowRankSpace)


@dataclasses.dataclass(frozen=True)
class NoiseEnergy:
    """`E|noise|^2` of one step, for noise of standard deviation 1 on what is released.

    Attributes:
        released: number of coordinates that are clipped, noised and used: the raw energy.
        lifted: energy of the noise in the lifted gradients, `gradient_scale` included.
        is_estimate: whether `lifted` comes from one draw of noise.
    """

    released: int
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
    draw; DP-PowerSGD's is not linear, and is tried on noise alone, without a gradient.

    Args:
        optimizer: of this library or derived from it; left as it was.
        parameters: of the model.
        normal: public random numbers, for carriers, masks and draws.
    """
    with _started(optimizer, parameters):
        space = optimizer.release_space(parameters, normal)
        subspace = space.refresh()
    scales = scales_of(parameters, optimizer.gradient_scale)
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
    return NoiseEnergy(released, float(total), is_estimate)


@contextlib.contextmanager
def _started(optimizer: DPOptimizer, parameters: Sequence[Parameter]) -> Iterator[None]:
    """Lets an optimizer that has not begun training begin at the present weights, for now."""
    if not isinstance(optimizer, CarrierOptimizer):
        yield
        return
    known = dict(optimizer.initial_weights)
    optimizer.on_start(parameters)
    try:
        yield
    finally:
        optimizer.initial_weights.clear()
        optimizer.initial_weights.update(known)


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
