"""Variables that the steps of `fit` read and nobody trains: that others write them is warned of.

A bank of features, or the centres of classes, which a callback or a `test_step` computes of private
data go into the next steps and into files without clip or noise, and nobody can see what they were
made of.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
import weakref
from collections.abc import Iterator, MutableMapping

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._tensorflow import value_behind
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.spending.digest import digests
from tf_lowrank_dp.training.state import find_run

_Digests = dict[int, tuple[weakref.ref, bytes]]  # by `id` of the handles of variables
_LAST: _Digests = {}  # whichever model they were looked at for


@contextlib.contextmanager
def told_what_is_written_beside(model: keras.Model) -> Iterator[None]:
    """Looks at such variables when a call of `fit`, `evaluate` or `predict` begins and ends.

    Guarantee: `fit` warns where others have written one, of several floating-point values, on which
    nothing is on record: between two calls, or in one, however that ends; so do `evaluate` and
    `predict`.  Of single numbers are the weights of terms that schedules change.  What is on record
    is told as unknown.

    Not claimed: values that are put back before the call ends, and what is no variable.

    Args:
        model: private, none of whose callbacks were called yet.
    """
    tell_what_is_written_beside(model)
    try:
        yield
    finally:
        tell_what_is_written_beside(model)


def save_own_variables(model: keras.Model, store: MutableMapping[str, np.ndarray]) -> None:
    """Stores what the model's class does; of a model that was made private.

    Keras calls it for every file that it writes of a model, or of one that holds it: `model.save`,
    `keras.saving.save_model`, `save_weights`, pickles.  `export` and `tf.train.Checkpoint` do not.
    """
    tell_what_is_written_beside(model)
    type(model).save_own_variables(model, store)


def tell_what_is_written_beside(model: keras.Model) -> None:
    """Compares with the last look, and warns.

    Guarantee: where a model was trained, by `fit` or a custom loop, and others have written such a
    variable since, who saves the model is told before the file is written; whoever adds a release
    to what is on record, or trains the variable from then on, before that.

    Args:
        model: of which others that share the variables may have been trained; nothing is known of
            variables with which no training has begun.
    """
    run = find_run(model)
    reads = [] if run is None else SPENDING.reads_without_record(run.record)
    now = _digests([*_watched_weights(model), *reads])
    was = {key: _LAST[key][1] for key, (handle, _) in now.items() if _is_known(handle())}
    begun = now if run is not None else {key: now[key] for key in was}
    _LAST.update(begun)
    if any(now[key][1] != digest for key, digest in was.items()):
        warnings.warn(
            f"Expected variables that the steps of '{model.name}' read and nobody trains to stay "
            "as they are. Received: others, which a callback, a test_step or other code has "
            "written. If that was computed of private data, it is in the next steps and in files "
            "without clip or noise, which no epsilon says: leave it out. Of released weights "
            "compute it in tfdp.post_processing, of the model that holds the variable, and of all "
            "that it is computed from. Of public data it may be anything.",
            stacklevel=2,
        )


def _watched_weights(model: keras.Model) -> list[tf.Tensor]:
    """Handles of what has no record, and which nobody trains, or trained at the last look."""
    unrecorded = [v for v in model.weights if not SPENDING.ledger([v]).num_steps]
    untrained = {id(v) for v in model.non_trainable_weights}
    handles = [(v.value.handle, id(v) in untrained) for v in unrecorded]
    return [handle for handle, is_untrained in handles if is_untrained or _is_known(handle)]


def _is_known(handle: tf.Tensor | None) -> bool:
    """Whether it was looked at before; of one that no longer exists another may have the number."""
    known = _LAST.get(id(handle))
    return known is not None and known[0]() is handle


def _digests(handles: list[tf.Tensor]) -> _Digests:
    values = [(handle, value_behind(handle)) for handle in handles]
    read = [(handle, value) for handle, value in values if _is_watched(value)]
    found = digests([value for _, value in read])
    return {
        id(handle): (weakref.ref(handle, functools.partial(_forget, id(handle))), digest)
        for (handle, _), digest in zip(read, found, strict=True)
    }


def _forget(key: int, reference: weakref.ref) -> None:
    if key in _LAST and _LAST[key][0] is reference:
        del _LAST[key]


def _is_watched(value: tf.Tensor | None) -> bool:
    """The library's own variables and those of random seeds are integers."""
    return value is not None and value.dtype.is_floating and value.shape.num_elements() > 1
