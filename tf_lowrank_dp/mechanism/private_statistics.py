"""Private statistics of a whole data set, for preprocessing: a mean and a histogram of tokens."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import dp_accounting
import numpy as np
import tensorflow as tf

from tf_lowrank_dp import _validate
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.per_example.gradient import zero_absent
from tf_lowrank_dp.per_example.materialized import Materialized
from tf_lowrank_dp.sampling.stages import refuse_joined_records
from tf_lowrank_dp.workers.join import joined

_AT_ONCE = 2**22  # numbers: bounds the memory of intermediate results


class PrivateRelease(NamedTuple):
    """What was released, and what it cost: give both others to `tfdp.record_release`.

    Attributes:
        value: float64, public from now on.
        event: what its release was.
        description: for the ledger and statements.
    """

    value: np.ndarray
    event: dp_accounting.DpEvent
    description: str


def private_mean(
    rows: np.ndarray, *, l2_norm_clip: float, noise_multiplier: float
) -> PrivateRelease:
    """The mean of bounded rows, such as those that `Normalization(mean=, variance=)` needs.

    Formal guarantee: one Gaussian mechanism with this noise multiplier, for neighbours by adding
    or removing one row.  Each row is scaled to a norm of at most `l2_norm_clip`, one with a NaN
    or infinity counts as zeros, and the divisor, the number of rows, is public.  Sums are float64,
    so that their rounding is far below the noise.

    Args:
        rows: one row for each record, `(n, ...)`, `n` at least 1.
        l2_norm_clip: largest norm of a row; others are scaled down to it.
        noise_multiplier: standard deviation of the noise of the sum over `l2_norm_clip`.

    Returns:
        The mean, `(...)`, its event and description.

    Raises:
        ValueError: an argument is out of its range, or there are no rows.

    Example:

    >>> import keras
    >>> x = np.random.default_rng(0).normal(3.0, 1.0, (10_000, 2))
    >>> mean, event, description = private_mean(x, l2_norm_clip=10.0, noise_multiplier=4.0)
    >>> bool(abs(mean - 3.0).max() < 0.2)
    True
    >>> spread, *_ = private_mean((x - mean) ** 2, l2_norm_clip=20.0, noise_multiplier=4.0)
    >>> layer = keras.layers.Normalization(mean=mean, variance=np.maximum(spread, 1e-6))
    """
    mechanism = _mechanism(l2_norm_clip, noise_multiplier)
    rows = np.asarray(rows)
    if rows.ndim < 1 or not len(rows) or rows.dtype.kind not in "biuf":
        raise ValueError(
            "Expected numbers with one row for each record. Received: an array of shape "
            f"{rows.shape} and dtype {rows.dtype}. Pass at least one row of numbers."
        )
    flat = rows.reshape([len(rows), -1])
    size = max(_AT_ONCE // max(flat.shape[1], 1), 1)
    total = tf.zeros([flat.shape[1]], tf.float64)
    for first in range(0, len(flat), size):
        part = tf.cast(flat[first : first + size], tf.float32)
        factors = clip_factors([Materialized(part)], tf.ones([len(part)]), mechanism.l2_norm_clip)
        total += tf.reduce_sum(tf.cast(zero_absent(part, factors), tf.float64), axis=0)
    mean = _released(mechanism, total) / len(rows)
    description = f"private mean of {len(rows)} rows"
    return PrivateRelease(mean.reshape(rows.shape[1:]), mechanism.event, description)


def private_histogram(
    records: Iterable[Iterable[Hashable]],
    candidates: Sequence[Hashable],
    *,
    tokens_per_record: int,
    noise_multiplier: float,
) -> PrivateRelease:
    """In how many records each token occurs, for `TextVectorization(vocabulary=)` and lookups.

    Formal guarantee: one Gaussian mechanism with this noise multiplier, for neighbours by adding
    or removing one record.  A record counts for its first `tokens_per_record` different
    candidates, once each, so it moves the counts by at most the root of their number in L2 norm.
    What is no list of tokens, such as the NaN of a missing text, has none.  Rows of tensors, such
    as those of `tf.strings.split`, are lists of tokens as well, and bytes are text in UTF-8 where
    the candidates are.

    Which tokens occur in the data at all is private: the candidates must be known without them,
    such as a public word list.  Others are not counted.

    Args:
        records: for each record its tokens, in any number.
        candidates: the tokens that may be counted, each once, chosen without the data.
        tokens_per_record: how many different tokens of a record count at most.
        noise_multiplier: standard deviation of the noise of a count over the root of
            `tokens_per_record`.

    Returns:
        The counts, in the order of the candidates, some below zero; the event; a description.

    Raises:
        ValueError: an argument is out of its range, or a candidate is there twice.

    Example:

    >>> texts, words = [["a", "b", "b"], ["b"], ["c", "?"]] * 300, ["a", "b", "c", "d"]
    >>> counts, event, _ = private_histogram(
    ...     texts, words, tokens_per_record=2, noise_multiplier=1.0
    ... )
    >>> vocabulary = [word for word, count in zip(words, counts, strict=True) if count > 100]
    >>> vocabulary
    ['a', 'b', 'c']
    """
    most = _validate.integer_at_least(1, tokens_per_record=tokens_per_record)
    mechanism = _mechanism(math.sqrt(most), noise_multiplier)
    positions = {_text(token): index for index, token in enumerate(candidates)}
    if not positions or len(positions) != len(candidates):
        raise ValueError(
            "Expected candidates, each once. Received: "
            f"{len(candidates)}, of which {len(positions)} are different. Remove the doubles."
        )
    counts = np.zeros(len(positions), np.float64)
    if isinstance(records, tf.data.Dataset):
        refuse_joined_records(records)
    for tokens in records:
        if _is_whole_text(tokens):
            raise ValueError(
                "Expected the tokens of each record. Received: one text of type "
                f"{type(tokens).__name__}. Split it first, as the layer will."
            )
        known = dict.fromkeys(positions[token] for token in _tokens(tokens) if token in positions)
        counts[list(known)[:most]] += 1.0
    description = f"private histogram of {len(positions)} tokens"
    return PrivateRelease(_released(mechanism, tf.constant(counts)), mechanism.event, description)


def _tokens(record: object) -> Iterator[Hashable]:
    """The tokens of a record; none of what is no list."""
    if isinstance(record, tf.Tensor | np.ndarray):
        array = np.asarray(record)
        if array.ndim > 1:
            raise _several_records(f"an array of shape {array.shape}, as of a batch")
        record = array.reshape(-1).tolist()
    hashable = filter(_is_hashable, record if isinstance(record, Iterable) else ())
    return map(_text, hashable)


def _several_records(what: str) -> ValueError:
    return ValueError(
        f"Expected the tokens of one record in each element, `(k,)`. Received: {what}, whose "
        "records would count as one. Pass records one by one: dataset.unbatch()."
    )


def _text(token: Hashable) -> Hashable:
    """Bytes as text, other tokens as they are."""
    return token.decode(errors="replace") if isinstance(token, bytes) else token


def _is_whole_text(record: object) -> bool:
    if isinstance(record, tf.Tensor):
        return record.dtype == tf.string and record.shape.rank == 0
    return isinstance(record, str | bytes)


def _is_hashable(token: object) -> bool:
    try:
        hash(token)
    except TypeError:
        return False
    return True


def _mechanism(l2_norm_clip: float, noise_multiplier: float) -> GaussianMechanism:
    if not joined().alone:
        raise UnsupportedModelError(
            f"Expected one process. Received: {joined()!r}, each of which would release with noise "
            "of its own. Compute it beforehand in one process, and give the workers the numbers."
        )
    _validate.positive(noise_multiplier=noise_multiplier)
    _validate.positive(l2_norm_clip=l2_norm_clip)
    clip = _validate.clip_norm(l2_norm_clip=l2_norm_clip)
    return GaussianMechanism(clip, float(noise_multiplier))


def _released(mechanism: GaussianMechanism, total: tf.Tensor) -> np.ndarray:
    """The total, float64 `(n,)`, with noise, in multiples of a `2^-30`th of its deviation.

    Normals are float32: below their last bits a float64 total would be released as it is.  So
    finer noise is added, down to below the multiples, and the total is rounded to them as well,
    which moves it by at most `grid sqrt(n)` more for a record: the noise is as much larger.
    """
    clip, multiplier = mechanism.l2_norm_clip, mechanism.noise_multiplier
    grid = 2.0 ** (math.floor(math.log2(multiplier * clip)) - 30)
    noise, size = NoiseGenerator(), total.shape[0]
    wider = multiplier * (1.0 + grid * math.sqrt(size) / clip)
    rounded = tf.round(total / grid) * grid
    [[noisy]] = dataclasses.replace(mechanism, noise_multiplier=wider).release([[rounded]], noise)
    [finer] = noise.normal([(size,)])
    fine = finer.numpy().astype(np.float64) * (multiplier * clip * 2.0**-12)
    return np.round((noisy.numpy() + fine) / grid) * grid
