"""What is known of one thing that values are kept in."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable
from typing import TypeAlias

import keras
import tensorflow as tf

from tf_lowrank_dp.spending.record import Record, steps_of

Thing: TypeAlias = keras.Variable | keras.layers.Layer | keras.optimizers.Optimizer
"""What records are kept for; a model is a layer as well."""


@dataclasses.dataclass
class Trace:
    """What is known of one variable, or of another thing that is asked what was spent on it.

    Attributes:
        thing: the variable or other thing.
        records: what its value depends on.
        runs: those whose steps update it, or have made the value that a file brought.
        latest: digest of its value when it was last looked at.
        seen: digests of values that such steps, or a file with its ledger, have left there.
        seen_at: releases of `runs` when it was looked at; None if any value is theirs.
        mark: int64 `(2,)`, whether a graph has updated it, and the checksum of the value that its
            last update left; None where no graph was traced that does.
        held: the value that a step has just left, and the releases of `runs` then.
        links: other things whose records count as its own.
        was_unbuilt: whether it is a layer that was not built when something was recorded for it.
    """

    thing: weakref.ref
    records: frozenset[Record] = frozenset()
    runs: frozenset[Record] = frozenset()
    latest: bytes | None = None
    seen: set[bytes] = dataclasses.field(default_factory=set)
    seen_at: int | None = None
    mark: tf.Variable | None = None
    held: tuple[tf.Tensor, int] | None = None
    links: list[weakref.ref] = dataclasses.field(default_factory=list)
    was_unbuilt: bool = False

    @property
    def steps(self) -> int:
        """Releases of its runs together, until their last updates."""
        return steps_of(self.runs)

    def note(self, digest: bytes, steps: int | None = None) -> None:
        """Takes the value of this digest as one on record, as of so many releases, or now."""
        self.latest, self.seen_at = digest, self.steps if steps is None else steps
        self.seen.add(digest)

    def add(self, records: frozenset[Record]) -> None:
        """Adds records, which reach a layer's variables where these come later as well."""
        thing = self.thing()
        self.records |= records
        self.was_unbuilt |= isinstance(thing, keras.layers.Layer) and not thing.built

    def has_handle(self, handles: set[int]) -> bool:
        """Whether it is of a variable whose handle has one of these `id`s, or of a layer that got
        such a variable later."""
        thing = self.thing()
        variables = [thing] if isinstance(thing, keras.Variable) else self.later_variables
        return any(id(getattr(v.value, "handle", None)) in handles for v in variables)

    @property
    def values(self) -> list[keras.Variable]:
        """The variable; of a layer those that it got later."""
        thing = self.thing()
        if thing is None or isinstance(thing, keras.layers.Layer):
            return self.later_variables
        return [thing]

    @property
    def later_variables(self) -> list[keras.Variable]:
        """Of a layer those that nobody could see when it was recorded.

        It was built since then, or quantisation has put new ones in the place of others.
        """
        thing = self.thing()
        if not isinstance(thing, keras.layers.Layer):
            return []
        quantized = thing.dtype_policy.quantization_mode is not None
        return thing.weights if quantized or self.was_unbuilt else []


def alive(references: Iterable[weakref.ref]) -> list[Thing]:
    """What still exists of these."""
    return [thing for thing in (reference() for reference in references) if thing is not None]
