"""Keys of the sampler's random draws. They belong to the sampler alone: noise has its own keys."""

from __future__ import annotations

import os
import secrets

import numpy as np

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=_count_fork)


def process_token() -> tuple[int, int]:
    """A value that differs between a process and every process forked from it.

    Example:

    >>> process_token() == process_token()
    True
    """
    return os.getpid(), _forks


def secret_generator() -> np.random.Generator:
    """A Philox generator whose whole 128-bit key comes from the operating system.

    Formal guarantees:
        * Two calls never share a key (except with probability `2**-128`).
        * The key is returned to nobody: it lives in the generator only.

    Example:

    >>> secret_generator().random() != secret_generator().random()
    True
    """
    return np.random.Generator(np.random.Philox(key=secrets.randbits(128)))


def seeded_generator(seed: int, stream: int, part: int = 0) -> np.random.Generator:
    """A reproducible Philox generator: not private, for tests and debugging.

    Args:
        seed: non-negative integer.
        stream: non-negative integer; different streams of a seed are independent.
        part: of the rows, from 0; those of a stream are independent.

    Example:

    >>> float(seeded_generator(7, 0).random()) == float(seeded_generator(7, 0).random())
    True
    """
    sequence = np.random.SeedSequence(entropy=seed, spawn_key=(stream, part) if part else (stream,))
    return np.random.Generator(np.random.Philox(sequence))
