"""What a data set is made of: our own samplers, variables that its functions read."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._tf_data import captured_by, data_sets_of
from tf_lowrank_dp.sampling.batch import PRESENCE, is_batch

_SAMPLED: weakref.WeakSet[tf.data.Dataset] = weakref.WeakSet()
_GIVEN: weakref.WeakValueDictionary[int, np.ndarray] = weakref.WeakValueDictionary()


class _Drawn(threading.local):
    """What this thread has taken of samplers: batches, and the rows in them that are examples."""

    batches = rows = 0


_DRAWN = _Drawn()
_OF_SAMPLER = (
    "Expected batches of examples alone. Received: {} of a PoissonSampler, without its presence, "
    "by which examples are told from the rows that fill a batch up: these would be trained on. "
    "Pass the PoissonSampler itself; for what is mapped over records, make it of "
    "tfdp.Records(source, map=...)."
)


def prefetched(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """A sampler's batches, noted as such, and made while steps are taken.

    An iterator whose pipeline is tuned often ends only when the thread that tunes it wakes up, 10,
    20, 40, ... ms apart and up to a minute: a call of `fit`, and each epoch of ordinary training,
    lasts for up to twice as long as its steps.  Of a pipeline of ours there is nothing to tune.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    dataset = dataset.prefetch(tf.data.AUTOTUNE).with_options(options)
    _SAMPLED.add(dataset)
    return dataset


def refuse_sampled(dataset: tf.data.Dataset) -> None:
    """Refuses a sampler's batches without presence, whose padding would be trained on.

    Raises:
        ValueError: the data set is made of such.
    """
    if is_batch(dataset.element_spec):
        return
    if any(each in _SAMPLED for each in data_sets_of(dataset)):
        raise ValueError(_OF_SAMPLER.format("a data set made from that"))


def given(batch: dict) -> dict:
    """A batch of a sampler, whose arrays are known again."""
    _DRAWN.batches += 1
    _DRAWN.rows += int(np.sum(batch[PRESENCE]))
    _GIVEN.update({id(leaf): leaf for leaf in tf.nest.flatten(batch)})
    return batch


def refuse_given(batch: Any) -> None:
    """Refuses arrays of a sampler's batch, as those of a generator over one.

    Raises:
        ValueError: one of them is such.
    """
    leaves = (leaf for leaf in tf.nest.flatten(batch) if leaf is not None)
    if any(_GIVEN.get(id(leaf)) is leaf for leaf in leaves):
        raise ValueError(_OF_SAMPLER.format("arrays"))


def without_padding(batches: Iterable) -> Iterator[Any]:
    """The batches of a source; one that is made of a sampler's draws has no more rows than these.

    Raises:
        ValueError: it has, so that the rows which fill a draw up would be trained on.
    """
    iterator = iter(batches)
    while True:
        before = _DRAWN.batches, _DRAWN.rows
        try:
            batch = next(iterator)
        except StopIteration:
            return
        leaves = [leaf for leaf in keras.tree.flatten(batch) if getattr(leaf, "ndim", 0)]
        drawn = _DRAWN.rows - before[1]
        if _DRAWN.batches > before[0] and any(len(leaf) > drawn for leaf in leaves):
            raise ValueError(_OF_SAMPLER.format("arrays made"))
        yield batch


def handles_read(source: Any) -> tuple[tf.Tensor, ...]:
    """Handles of the variables that functions of a data set read, such as those of a teacher.

    Args:
        source: data of any kind; of others than `tf.data.Dataset` nothing is known.
    """
    if not isinstance(source, tf.data.Dataset):
        return ()
    captured = (tensor for each in data_sets_of(source) for tensor in captured_by(each))
    return tuple(tensor for tensor in captured if tensor.dtype == tf.resource)
