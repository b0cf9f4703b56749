"""Variables that the steps of `fit` read and nobody trains: that others write them is warned of.

A bank of features, or the centres of classes, which a callback or a `test_step` computes of private
data go into the next steps and into files without clip or noise, and nobody can see what they were
made of.
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Iterator

import keras
import tensorflow as tf

from tf_lowrank_dp._tensorflow import value_behind
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.spending.digest import digests
from tf_lowrank_dp.training.state import Run, find_run

_Digests = dict[int, tuple[weakref.ref, bytes]]  # by `id` of the handles of variables
_LAST: weakref.WeakKeyDictionary[keras.Model, _Digests] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def told_what_is_written_beside(model: keras.Model) -> Iterator[None]:
    """Looks at such variables when `fit` begins and ends.

    Guarantee: `fit` warns where others have written one, of several floating-point values, on which
    nothing is on record: between two calls of `fit`, or in one, however that ends.  Of single
    numbers are the weights of terms that schedules change.  What is on record is told as unknown.

    Not claimed: values that are put back before the call ends, and what is no variable.

    Args:
        model: private, whose run has begun, and none of whose callbacks were called.
    """
    tell_what_is_written_beside(model)
    try:
        yield
    finally:
        tell_what_is_written_beside(model)


def tell_what_is_written_beside(model: keras.Model) -> None:
    """Compares with the last look, and warns.

    Guarantee: once a model has trained, `evaluate` and `predict` look when they end, and `save` and
    `save_weights` before they write: what these call, and what came before them, is told of without
    another `fit`.

    Args:
        model: private; nothing is known of one that has not trained.
    """
    run = find_run(model)
    if run is None:
        return
    before, now = _LAST.get(model, {}), _digests(model, run)
    _LAST[model] = now
    was = {key: digest for key, (handle, digest) in before.items() if handle() is not None}
    if any(was.get(key, digest) != digest for key, (_, digest) in now.items()):
        warnings.warn(
            f"Expected variables that the steps of '{model.name}' read and nobody trains to stay "
            "as they are. Received: others, which a callback, a test_step or other code has "
            "written. If that was computed of private data, it is in the next steps and in files "
            "without clip or noise, which no epsilon says: leave it out. Of released weights "
            "compute it in tfdp.post_processing, of the model that holds the variable, and of all "
            "that it is computed from. Of public data it may be anything.",
            stacklevel=2,
        )


def _digests(model: keras.Model, run: Run) -> _Digests:
    untrained = [v for v in model.non_trainable_weights if not SPENDING.ledger([v]).num_steps]
    handles = [v.value.handle for v in untrained] + SPENDING.reads_without_record(run.record)
    values = [(handle, value_behind(handle)) for handle in handles]
    read = [(handle, value) for handle, value in values if _is_watched(value)]
    found = digests([value for _, value in read])
    return {
        id(handle): (weakref.ref(handle), digest)
        for (handle, _), digest in zip(read, found, strict=True)
    }


def _is_watched(value: tf.Tensor | None) -> bool:
    """The library's own variables and those of random seeds are integers."""
    return value is not None and value.dtype.is_floating and value.shape.num_elements() > 1
