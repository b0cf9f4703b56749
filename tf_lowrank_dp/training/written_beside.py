"""Variables that the steps of `fit` read and nobody trains: that others write them is warned of.

A bank of features, or the centres of classes, which a callback or a `test_step` computes of private
data go into the next steps and into files without clip or noise, and nobody can see what they were
made of.
"""

from __future__ import annotations

import contextlib
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
_LAST: weakref.WeakKeyDictionary[keras.Model, _Digests] = weakref.WeakKeyDictionary()


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
        model: private; nothing is known of one whose training has not begun.
    """
    run, before = find_run(model), _LAST.get(model)
    if run is None and before is None:
        return
    reads = [] if run is None else SPENDING.reads_without_record(run.record)
    was = {key: each for key, each in (before or {}).items() if each[0]() is not None}
    now = _digests(model, reads, was)
    _LAST[model] = was | now
    if any(key in was and was[key][1] != digest for key, (_, digest) in now.items()):
        warnings.warn(
            f"Expected variables that the steps of '{model.name}' read and nobody trains to stay "
            "as they are. Received: others, which a callback, a test_step or other code has "
            "written. If that was computed of private data, it is in the next steps and in files "
            "without clip or noise, which no epsilon says: leave it out. Of released weights "
            "compute it in tfdp.post_processing, of the model that holds the variable, and of all "
            "that it is computed from. Of public data it may be anything.",
            stacklevel=2,
        )


def _digests(model: keras.Model, reads: list[tf.Tensor], was: _Digests) -> _Digests:
    """Of what nobody trains, or trained when it was looked at last, and of other reads."""
    untrained = {id(v) for v in model.non_trainable_weights}
    unrecorded = [v for v in model.weights if not SPENDING.ledger([v]).num_steps]
    handles = [(v.value.handle, id(v) in untrained) for v in unrecorded]
    watched = [handle for handle, is_untrained in handles if is_untrained or id(handle) in was]
    with tf.init_scope():  # a loop's graph may be traced
        values = [(handle, value_behind(handle)) for handle in watched + reads]
        read = [(handle, value) for handle, value in values if _is_watched(value)]
        found = digests([value for _, value in read])
    return {
        id(handle): (weakref.ref(handle), digest)
        for (handle, _), digest in zip(read, found, strict=True)
    }


def _is_watched(value: tf.Tensor | None) -> bool:
    """The library's own variables and those of random seeds are integers."""
    return value is not None and value.dtype.is_floating and value.shape.num_elements() > 1
