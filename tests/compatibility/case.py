"""What a public example is here: where it comes from, how it is run, and what is to happen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_lowrank_dp as tfdp

UNCHANGED = "unchanged"
SAMPLING = "sampling"
REFUSED = "refused"


@dataclasses.dataclass
class Run:
    """What an author's script ends with.

    Attributes:
        model: the author's, not yet compiled.
        fit: arguments of `fit`, on small made-up arrays.
        compile: arguments of `compile`, without the optimizer.
        optimizer: the author's.
    """

    model: keras.Model
    fit: dict[str, Any]
    compile: dict[str, Any]
    optimizer: Any = "adam"

    @property
    def in_batches(self) -> bool:
        """Whether the data come in batches, whose sampling has to be stated."""
        return isinstance(self.fit["x"], (tf.data.Dataset, keras.utils.PyDataset, Iterator))


@dataclasses.dataclass(frozen=True)
class Example:
    """An example, with the outcome that is expected of it.

    Attributes:
        repository: of GitHub.
        path: of the file in it.
        what: the model and what is special about how it is trained.
        build: makes the `Run`.
        statement: what has to be told of the sampling, with data that come in batches.
        cause: regular expression of the refusal, if there is one.
        reason: of the refusal, in words.
        remedy: what the refusal advises, in words.
        remedied: makes the run that follows the advice, or trains by itself and returns the model.
    """

    repository: str
    path: str
    what: str
    build: Callable[[], Run]
    statement: dict[str, Any]
    cause: str
    reason: str
    remedy: str
    remedied: Callable[[], Run | keras.Model] | None

    @property
    def name(self) -> str:
        return self.build.__name__

    @property
    def outcome(self) -> str:
        if self.cause:
            return REFUSED
        return SAMPLING if self.statement else UNCHANGED


def example(
    repository: str,
    path: str,
    what: str,
    *,
    statement: dict[str, Any] | None = None,
    cause: str = "",
    reason: str = "",
    remedy: str = "",
    remedied: Callable[[], Run | keras.Model] | None = None,
) -> Callable[[Callable[[], Run]], Example]:
    """Makes an `Example` of the function that builds it."""

    def wrap(build: Callable[[], Run]) -> Example:
        return Example(
            *(repository, path, what, build, statement or {}),
            *(cause, reason, remedy, remedied),
        )

    return wrap


def make_private(run: Run) -> None:
    """The README's two lines, and the author's `compile`."""
    tfdp.make_private(run.model)
    optimizer = tfdp.DPSGDOptimizer(
        run.optimizer, l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-5
    )
    run.model.compile(optimizer=optimizer, jit_compile=False, **run.compile)


def train(run: Run, statement: dict[str, Any]) -> None:
    """The README's two lines, and the author's `compile` and `fit`."""
    make_private(run)
    if statement and run.in_batches:
        statement = {"sampling": "shuffle", **statement}
    else:
        statement = {}
    run.model.fit(**{"verbose": 0, **run.fit, **statement})


def generator() -> np.random.Generator:
    return np.random.default_rng(0)


def images(n: int, *shape: int) -> np.ndarray:
    return generator().random((n, *shape)).astype("float32")


def normal(n: int, *shape: int) -> np.ndarray:
    return generator().normal(size=(n, *shape)).astype("float32")


def integers(high: int, *shape: int) -> np.ndarray:
    return generator().integers(0, high, shape)


def one_hot(classes: int, *shape: int) -> np.ndarray:
    return np.eye(classes, dtype="float32")[integers(classes, *shape)]
