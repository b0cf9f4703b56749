"""Runs that are known by their numbers alone: no model, no data."""

from __future__ import annotations

import dataclasses

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting.ledger import PrivacyLedger
from tf_lowrank_dp.accounting.ledger_entry import LedgerEntry
from tf_lowrank_dp.accounting.sampling import Sampling, steps_per_epoch
from tf_lowrank_dp.accounting.statement import statement


def dp_sgd_statement(
    noise_multiplier: float,
    delta: float,
    batch_size: int,
    num_examples: int | None,
    epochs: int | None = None,
    steps: int | None = None,
    *,
    accountant: str = "pld",
    sampling: Sampling | None = None,
) -> str:
    """The privacy statement of a training run, from its numbers alone.

    It is what `privacy_statement` says after such a run, in place of TensorFlow Privacy's
    `compute_dp_sgd_privacy_statement`.

    Args:
        noise_multiplier: standard deviation of the noise over the clip norm, at least 0.
        delta: in (0, 1), should be below 1 / number of examples.
        batch_size: expected number of examples of a batch.
        num_examples: number of examples. It may be None if `sampling` is given.
        epochs: number of epochs of `ceil(num_examples / batch_size)` steps. Either this or `steps`.
        steps: number of steps.
        accountant: "pld" or "rdp".
        sampling: how batches are drawn; by default Poisson sampling, as `fit` draws from arrays.

    Raises:
        ValueError: an argument is missing, contradicts another one or is out of its range.

    Example:

    >>> text = dp_sgd_statement(1.1, 1e-5, batch_size=600, num_examples=60_000, steps=100)
    >>> print(text.splitlines()[0])
    (0.5498, 1e-05)-differentially private: epsilon = 0.5498 at delta = 1e-05.
    """
    sampling = planned_sampling(batch_size, num_examples, sampling)
    ledger = PrivacyLedger()
    run = ledger.append(LedgerEntry(sampling, noise_multiplier))
    ledger.update_steps(run, planned_steps(epochs, steps, sampling))
    return statement(ledger, delta, accountant=accountant)


def planned_sampling(
    batch_size: int, num_examples: int | None, sampling: Sampling | None
) -> Sampling:
    """How batches will be drawn."""
    if sampling is None:
        return Sampling.poisson(num_examples, batch_size, drawn_by="library")
    if batch_size != sampling.batch_size:
        raise _validate.error(
            f"to equal that of `sampling`, {sampling.batch_size}",
            "Pass the same number twice.",
            batch_size=batch_size,
        )
    if None not in (num_examples, sampling.num_examples) and num_examples != sampling.num_examples:
        raise _validate.error(
            f"to equal that of `sampling`, {sampling.num_examples}",
            "Pass the same number twice.",
            num_examples=num_examples,
        )
    if num_examples is None or sampling.num_examples is not None:
        return sampling
    return dataclasses.replace(sampling, num_examples=num_examples)


def planned_steps(epochs: int | None, steps: int | None, sampling: Sampling) -> int:
    """The number of steps that were asked for, in steps or in epochs."""
    if (epochs is None) == (steps is None):
        raise ValueError(
            "Expected exactly one of `epochs` and `steps`. "
            f"Received: epochs={epochs!r}, steps={steps!r}. Pass one of them."
        )
    if steps is not None:
        return _validate.integer_at_least(1, steps=steps)
    epochs = _validate.integer_at_least(1, epochs=epochs)
    if sampling.steps_per_pass is not None:
        return epochs * sampling.steps_per_pass
    if sampling.num_examples is None:
        raise _validate.error(
            "to be given with `epochs`", "Pass num_examples=..., or steps=....", num_examples=None
        )
    return epochs * steps_per_epoch(sampling.num_examples, sampling.batch_size)
