"""Numbers of `random` and `numpy.random` that Python code of the data draws while `fit` trains."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

_LOCK = threading.Lock()
_before: list[tuple[Any, Any]] = []  # of each fit at work, the states when the first one began


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
        if not _before:
            _before.append((random.getstate(), np.random.get_state()))
            random.seed(secrets.randbits(256))
            np.random.seed(np.frombuffer(secrets.token_bytes(256), np.uint32))
        else:
            _before.append(_before[0])
    try:
        yield
    finally:
        with _LOCK:
            python, numpy = _before.pop()
            if not _before:
                random.setstate(python)
                np.random.set_state(numpy)
