"""What one of several workers draws: from a part of common rows, or from rows that it alone has."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from tf_lowrank_dp.sampling import padding
from tf_lowrank_dp.sampling.poisson import PoissonSampler


def part(sampler: PoissonSampler, index: int, count: int) -> PoissonSampler:
    """The same sampler for the rows `index::count`, at the same rate.

    Formal guarantee: each row is in exactly one of the `count` parts, so that draws of all parts,
    each by itself, are one draw of all rows.

    Args:
        sampler: of all rows.
        index: of the worker, from 0.
        count: number of workers.

    Example:

    >>> import numpy as np
    >>> one = PoissonSampler(np.arange(4.0), batch_size=4, steps=1)
    >>> [batch["x"].tolist() for index in range(2) for batch in part(one, index, 2)]
    [[0.0, 2.0], [1.0, 3.0]]
    """
    other = _of_worker(sampler, index)
    other._own = range(index, sampler.num_examples, count)
    return _padded(other, count)


def shard(
    sampler: PoissonSampler, index: int, sizes: Sequence[int], batch_size: int
) -> PoissonSampler:
    """A sampler of this worker's rows, at the rate of those of all workers together.

    Formal guarantee: if no row is in two shards, draws of all shards, each by itself, are one draw
    of all rows.

    Args:
        sampler: of the rows that this worker has.
        index: of the worker, from 0.
        sizes: number of rows of each worker.
        batch_size: expected number of examples of a step of all workers.

    Example:

    >>> import numpy as np
    >>> own = PoissonSampler(np.arange(5.0), batch_size=1)
    >>> shard(own, 0, [5, 15], batch_size=10).sampling_rate
    0.5
    """
    other = _of_worker(sampler, index)
    other._draw_from(sum(sizes), batch_size)
    other._own, other._shards = range(sizes[index]), len(sizes)
    return _padded(other, len(sizes))


def _of_worker(sampler: PoissonSampler, index: int) -> PoissonSampler:
    """A copy whose random numbers are those of one worker."""
    other = copy.copy(sampler)
    other._seed, other._worker = sampler._seed, index
    return other


def _padded(sampler: PoissonSampler, count: int) -> PoissonSampler:
    """Pads draws of a share of the batch, rather than those of all of it."""
    granule = padding.ceil_sqrt(-(-sampler.batch_size // count))
    sampler._pad_to_multiple = min(sampler.pad_to_multiple, granule)
    return sampler
