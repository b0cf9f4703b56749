"""One draw: which examples are in it, and which draw it is."""

from __future__ import annotations

import functools
import itertools
import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from tf_lowrank_dp.sampling.batch import DRAW, PRESENCE
from tf_lowrank_dp.sampling.randomness import process_token

NUMBERS = tf.TensorSpec((7,), tf.int64)

_ITERATIONS = itertools.count()  # of all samplers of this process


@functools.cache
def _secret_of(process: tuple[int, int]) -> int:
    return secrets.randbits(62)


def this_process() -> int:
    """A number that draws of this process have: those of others may come out of a file."""
    return _secret_of(process_token())


def poisson_draw(
    generator: np.random.Generator, num_examples: int, sampling_rate: float
) -> np.ndarray:
    """Draws one Poisson sample of example indices.

    The size is drawn from Binomial(num_examples, sampling_rate) and then a uniform subset of this
    size, which is the same distribution as one coin per example.

    Formal guarantees:
        * Every example is included independently with probability `sampling_rate` (a float64).
        * No index occurs twice.
        * The cost grows with the size drawn, not with `num_examples`, while the draw is below 2 %
          of the examples (numpy then samples with Floyd's algorithm).

    Args:
        generator: source of randomness.
        num_examples: number of examples.
        sampling_rate: probability in (0, 1].

    Returns:
        Increasing int64 indices `(size,)`.

    >>> import numpy as np
    >>> poisson_draw(np.random.default_rng(0), 4, 1.0).tolist()
    [0, 1, 2, 3]
    """
    size = generator.binomial(num_examples, sampling_rate)
    indices = generator.choice(num_examples, size, replace=False, shuffle=False)
    return np.sort(indices)


def draw_numbers(num_examples: int, batch_size: int, seeded: bool) -> Iterator[np.ndarray]:
    """Yields what the draws of one iteration are of, and numbers that increase.

    Args:
        num_examples: that are drawn from.
        batch_size: expected number of examples of a draw.
        seeded: whether they can be repeated.

    Yields:
        int64 `(6,)`: the arguments, the process, the iteration in it, the draw in that.
    """
    iteration = next(_ITERATIONS)
    for number in itertools.count():
        of = [num_examples, batch_size, seeded]
        yield np.array([*of, this_process(), iteration, number], np.int64)


@tf.autograph.experimental.do_not_convert
def with_numbers(batch: dict, numbers: Any) -> dict:
    """A logical batch that says which draw it is, and of how many rows, padding included."""
    presence = batch[PRESENCE]
    if tf.is_tensor(presence):
        rows = tf.shape(presence, tf.int64)
        return {**batch, DRAW: tf.ensure_shape(tf.concat([numbers, rows], 0), NUMBERS.shape)}
    return {**batch, DRAW: np.append(numbers, np.int64(len(presence)))}
