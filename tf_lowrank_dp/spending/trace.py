"""What is known of one thing that values are kept in."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_without_variables, own_weights
from tf_lowrank_dp.spending.present import handle_of
from tf_lowrank_dp.spending.record import Record, steps_of

Thing: TypeAlias = keras.Variable | keras.layers.Layer | keras.optimizers.Optimizer
"""What records are kept for; a model is a layer as well."""

_SEEN = 10_000  # a megabyte for each variable


@dataclasses.dataclass
class Trace:
    """What is known of one variable, or of another thing that is asked what was spent on it.

    Attributes:
        thing: the variable or other thing.
        records: what its value depends on.
        runs: those whose steps update it, or have made the value that a file brought.
        latest: digest of its value when it was last looked at.
        seen: digests of values that such steps, or a file with its ledger, have left there; of the
            last 10,000, in the order in which they were seen.
        seen_at: releases of `runs` when it was looked at; None if any value is theirs.
        mark: int64 `(2,)`, whether a graph has updated it, and the checksum of the value that its
            last update left; None where no graph was traced that does.
        held: the value that a step has just left, and the releases of `runs` then.
        links: other things whose records count as its own.
    """

    thing: weakref.ref
    records: frozenset[Record] = frozenset()
    runs: frozenset[Record] = frozenset()
    latest: bytes | None = None
    seen: dict[bytes, None] = dataclasses.field(default_factory=dict)
    seen_at: int | None = None
    mark: tf.Variable | None = None
    held: tuple[tf.Tensor, int] | None = None
    links: list[weakref.ref] = dataclasses.field(default_factory=list)

    @property
    def steps(self) -> int:
        """Releases of its runs together, until their last updates."""
        return steps_of(self.runs)

    def note(self, digest: bytes, steps: int | None = None) -> None:
        """Takes the value of this digest as one on record, as of so many releases, or now."""
        self.latest, self.seen_at = digest, self.steps if steps is None else steps
        self.know(digest)

    def know(self, digest: bytes) -> None:
        """Takes the value of this digest as one on record if it is put back later."""
        self.seen.pop(digest, None)
        self.seen[digest] = None
        if len(self.seen) > _SEEN:  # loops may look at each step
            del self.seen[next(iter(self.seen))]

    def has_handle(self, handles: set[int]) -> bool:
        """Whether it is of a variable whose handle has one of these `id`s, or of a layer with such
        a weight of its own: quantisation puts others in their place, and the layer stays."""
        thing = self.thing()
        own = own_weights(thing) if isinstance(thing, keras.layers.Layer) else [thing]
        return any(id(handle_of(variable)) in handles for variable in own)


class Recognised(NamedTuple):
    """What a trace has gained as the value of its thing was recognised."""

    trace: Trace
    records: frozenset[Record]
    runs: frozenset[Record]


def quantized_variables(thing: Thing | None) -> list[keras.Variable]:
    """The variables of a layer that is quantised; none of anything else."""
    if not isinstance(thing, keras.layers.Layer):
        return []
    return own_weights(thing) if thing.dtype_policy.quantization_mode is not None else []


def values_kept_in(thing: Thing) -> list[keras.Variable]:
    """The variable; of a layer the new ones that quantisation has put in the place of others."""
    return quantized_variables(thing) if isinstance(thing, keras.layers.Layer) else [thing]


def variables_of(things: Iterable[Thing]) -> list[Thing]:
    """The variables among things."""
    return [thing for thing in things if isinstance(thing, keras.Variable | tf.Variable)]


def tells_of_data(variable: Thing) -> bool:
    """Whether a variable's value does: how far an optimizer has come and its rate do not."""
    return variable.name not in ("iteration", "learning_rate")


def refuse_unbuilt(model: keras.Model) -> None:
    """Refuses a model that something shall be recorded for before its variables exist.

    What is recorded follows variables, to whatever model and function they come.

    Raises:
        ValueError: the model, or a layer of it, is not built.
    """
    missing = [layer.name for layer in layers_without_variables(model)]
    if missing:
        raise ValueError(
            "Expected a model that is built, whose variables what was spent belongs to. Received: "
            f"'{model.name}', without those of {', '.join(map(repr, missing))}. Call it on a "
            "batch beforehand, so that all its layers are used, or layer.build(input_shape)."
        )


def alive(references: Iterable[weakref.ref]) -> list[Thing]:
    """What still exists of these."""
    return [thing for thing in (reference() for reference in references) if thing is not None]
