"""A statement of the user: these values are functions of what was released."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of, own_weights
from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.accounting.notes import adapted_entry
from tf_lowrank_dp.optimizers.ledger_in_file import values_of
from tf_lowrank_dp.spending import SPENDING, Record
from tf_lowrank_dp.spending.digest import digests
from tf_lowrank_dp.spending.record import Steps, hold
from tf_lowrank_dp.spending.trace import Thing, refuse_unbuilt
from tf_lowrank_dp.training.budget import tell_graphs
from tf_lowrank_dp.training.other_releases import adapted_parts
from tf_lowrank_dp.training.state import look, tell_file, things_of
from tf_lowrank_dp.training.watched_weights import tell_changes
from tf_lowrank_dp.training.written_beside import tell_what_is_written_beside

_Records: TypeAlias = weakref.WeakKeyDictionary[keras.Model, Record]
_OF_OTHERS: _Records = weakref.WeakKeyDictionary()
_COMPUTED: _Records = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def post_processing(model: keras.Model, *others: keras.Model) -> Iterator[None]:
    """States that values assigned to weights inside are functions of released ones alone.

    An average of the weights of several epochs, their rounding or pruning cost nothing more, but
    from the outside they look like training on private data, after which statements say "prior
    spend unknown".  What was changed before stays unknown.

    Guarantee: none about what happens inside.  That it reads no private data is the user's word,
    as that of a `sampling` is.

    Args:
        model: whose weights are assigned: any that holds them, compiled or not.
        *others: all other private models whose weights the values are computed from, such as those
            of an average: what was spent on them before and inside counts for this one as well.

    Raises:
        RuntimeError: in a `tf.function`, where the block runs once, while it is traced.
        ValueError: the ledgers of the models contradict each other, or the model is not built when
            the block ends, though something was spent on the others.

    Example:

    >>> import keras, numpy as np
    >>> import tf_lowrank_dp as tfdp
    >>> model = tfdp.make_private(keras.Sequential([keras.Input([3]), keras.layers.Dense(2)]))
    >>> optimizer = tfdp.DPSGDOptimizer("sgd", l2_norm_clip=1.0, noise_multiplier=2.0)
    >>> model.compile(optimizer, "mse")
    >>> _ = model.fit(np.zeros([8, 3]), np.zeros([8, 2]), batch_size=4, verbose=0)
    >>> with tfdp.post_processing(model):
    ...     model.set_weights([np.round(weight, 2) for weight in model.get_weights()])
    >>> "unknown" in tfdp.privacy_statement(model, delta=1e-5)
    False
    """
    if not tf.executing_eagerly():
        raise RuntimeError(
            "Expected tfdp.post_processing around calls of a tf.function. Received: a block inside "
            "of one, which runs once, while the function is traced. Put it around the loop."
        )
    for each in (model, *others):
        if not isinstance(each, keras.layers.Layer):
            raise TypeError(
                "Expected models: tfdp.post_processing(model, teacher, another_teacher). Received: "
                f"{type(each).__name__}. Pass each model as an argument of its own."
            )
    tell_changes(model)
    tell_what_is_written_beside(model)
    _add_what_was_spent_on(others, model)
    before, since = _digests(model), SPENDING.steps_of_runs(layers_of(model))

    def tell() -> None:
        SPENDING.see(values_of(model))  # first, as the steps of another may read them
        _add_what_was_spent_on(others, model, since)
        now = _digests(model)
        made = [v for v in values_of(model) if now[id(v)] != before.get(id(v))]
        things = [*made, *_told_of(made, model)]
        _add(SPENDING.ledger(things_of(model)), things, _COMPUTED, model, since)
        SPENDING.computed(made)
        SPENDING.tell_layers(layers_of(model))
        SPENDING.see(values_of(model))

    try:
        with SPENDING.tellers.inside(tell):
            yield
    finally:
        tell_graphs(model)
    if any(SPENDING.records(things_of(other)) for other in others):
        refuse_unbuilt(model)


def _add_what_was_spent_on(
    others: Sequence[keras.Model], model: keras.Model, since: Steps | None = None
) -> None:
    """Of the others on all that the model consists of now: it may be built inside of the block."""
    for other in others:
        look(other)
        spent = SPENDING.ledger(things_of(other))
        spent.merge(PrivacyLedger(map(adapted_entry, adapted_parts(other))))
        _add(spent, things_of(model), _OF_OTHERS, model, since)
    if others:
        tell_file(model)


def _add(
    spent: PrivacyLedger,
    things: Sequence[Thing],
    known: _Records,
    model: keras.Model,
    since: Steps | None,
) -> None:
    """Adds it to those that lack it, in one record of the model, which grows from block to block.

    If each block of a loop left a record of its own, each look would take longer than the last.
    """
    present = [(thing, SPENDING.records([thing])) for thing in things]
    holding = {records: hold(records, spent) for records in {records for _, records in present}}
    lacking = [thing for thing, records in present if not holding[records]]
    if lacking:
        known[model] = SPENDING.add(lacking, spent, known.get(model), since)


def _told_of(made: Sequence[Thing], model: keras.Model) -> list[Thing]:
    """The layers that will know what is on record for these values (`SPENDING.tell_layers`)."""
    known = set(map(id, made))
    return [
        layer for layer in layers_of(model) if not known.isdisjoint(map(id, own_weights(layer)))
    ]


def _digests(model: keras.Model) -> dict[int, bytes]:
    values = values_of(model)
    return dict(zip(map(id, values), digests(values), strict=True))
