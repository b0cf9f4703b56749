"""Numbers of `random` and `numpy.random` that Python code of the data draws while it is read."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

_LOCK = threading.Lock()
_before: list[Any] = []  # of each fit at work, the states when the first one began


def renew_python_numbers() -> None:
    """Has the generators of `random` and `numpy.random` go on from the operating system's."""
    random.seed(secrets.randbits(256))
    np.random.seed(np.frombuffer(secrets.token_bytes(256), np.uint32))


@contextlib.contextmanager
def secret_python_numbers(seeded: bool) -> Iterator[None]:
    """Context in which the generators of `random` and `numpy.random` follow the operating system.

    A source's `__getitem__`, or a generator, that augments examples by them has one stream for
    all: with a seed that is known, one record less would change what all later ones become.  They
    go on as before when the last `fit` of the process ends.

    Args:
        seeded: whether the run follows a given seed: nothing is done then.
    """
    if seeded:
        yield
        return
    with _LOCK:
        _before.append(_before[0] if _before else _states())
        renew_python_numbers()
    try:
        yield
    finally:
        with _LOCK:
            states = _before.pop()
            if not _before:
                _restore(states)


@contextlib.contextmanager
def same_python_numbers() -> Iterator[None]:
    """Context in which `random` and `numpy.random` give the same numbers each time."""
    before = _states()
    random.seed(0)
    np.random.seed(0)
    try:
        yield
    finally:
        _restore(before)


def _states() -> tuple[Any, Any]:
    return random.getstate(), np.random.get_state()


def _restore(states: tuple[Any, Any]) -> None:
    python, numpy = states
    random.setstate(python)
    np.random.set_state(numpy)
