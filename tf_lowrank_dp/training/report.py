"""What a private model tells about its privacy."""

from __future__ import annotations

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting import PrivacyReport, report_of, statement
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.training.other_releases import notes_of
from tf_lowrank_dp.training.state import find_run, ledger_of


def privacy_spent(model: keras.Model, delta: float | None = None) -> float:
    """Epsilon spent on the model so far, over all runs that any of its variables depends on.

    What was spent follows the variables: it is the same for every model that holds them, nested,
    shared or extracted, private or not.

    Args:
        model: any Keras model.
        delta: the delta of the guarantee; the optimizer's if None.

    Returns:
        Epsilon, 0.0 if nothing was released, `inf` if something was released without noise.  Of
        runs with a given seed, which only tests should have, it is what it would be without: they
        are not private, as the statement and the report say.

    Raises:
        ValueError: no delta is known.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> tfdp.privacy_spent(tfdp.make_private(model), delta=1e-5)
    0.0
    """
    return ledger_of(model).epsilon(delta_of(model, delta), accountant=accountant_of(model))


def privacy_statement(
    model: keras.Model, delta: float | None = None, *, max_examples_per_user: int | None = None
) -> str:
    """A text that says what is guaranteed, by what, and under which assumptions.

    Args:
        model: any Keras model.
        delta: the delta of the guarantee; the optimizer's if None.
        max_examples_per_user: states what holds for users who contributed up to so many examples
            (Ganesh 2024), of a model that was trained with privacy of examples.  Far less than
            epsilon times their number where batches are Poisson samples.

    Returns:
        Several lines: epsilon, delta, noise, sampling, steps, neighbouring relation, assumptions.
    """
    return statement(
        ledger_of(model),
        delta_of(model, delta),
        accountant=accountant_of(model),
        num_examples=_num_examples(model),
        notes=notes_of(model),
        max_examples_per_user=max_examples_per_user,
    )


def privacy_report(
    model: keras.Model, delta: float | None = None, *, hyperparameter_search: str | None = None
) -> PrivacyReport:
    """All that should be published about the privacy of a model, as data, JSON or Markdown.

    It holds what section 5.3 of "How to DP-fy ML" (Ponomareva et al., 2023) asks for, and nothing
    of the data but their number.

    Args:
        model: any Keras model.
        delta: the delta of the guarantee; the optimizer's if None.
        hyperparameter_search: a sentence on how hyperparameters were chosen, which no ledger
            knows: on public data, say, or by how many runs on the private data.

    Returns:
        A report with `to_json()` and `to_markdown()`.

    Raises:
        ValueError: no delta is known.

    Example:

    >>> import keras, tf_lowrank_dp as tfdp
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> report = tfdp.privacy_report(tfdp.make_private(model), delta=1e-5)
    >>> report.neighbours
    'adding or removing one example (ADD_OR_REMOVE_ONE)'
    """
    return report_of(
        ledger_of(model),
        delta_of(model, delta),
        accountant=accountant_of(model),
        num_examples=_num_examples(model),
        notes=notes_of(model),
        hyperparameter_search=hyperparameter_search,
    )


def _num_examples(model: keras.Model) -> int | None:
    """Of the present run, if there is one."""
    run = find_run(model)
    return None if run is None else run.sampling.num_examples


def _optimizer(model: keras.Model) -> DPOptimizer | None:
    return getattr(model, "optimizer", None)


def delta_of(model: keras.Model, delta: float | None) -> float:
    """The given delta, else the optimizer's.

    Raises:
        ValueError: there is none.
    """
    delta = delta if delta is not None else getattr(_optimizer(model), "delta", None)
    return _validate.below_one(delta=delta)


def accountant_of(model: keras.Model) -> str:
    """The accountant that the optimizer was given, else the tight one."""
    return getattr(_optimizer(model), "accountant", "pld")
