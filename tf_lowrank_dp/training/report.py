"""What a private model tells about its privacy."""

from __future__ import annotations

import keras

from tf_lowrank_dp import _validate
from tf_lowrank_dp.accounting import statement
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.training.other_releases import notes_of
from tf_lowrank_dp.training.state import find_state, ledger_of


def privacy_spent(model: keras.Model, delta: float | None = None) -> float:
    """Epsilon spent on the model so far, over all runs that any of its variables depends on.

    What was spent follows the variables: it is the same for every model that holds them, nested,
    shared or extracted, private or not.

    Args:
        model: any Keras model.
        delta: the delta of the guarantee; the optimizer's if None.

    Returns:
        Epsilon, 0.0 if nothing was released, `inf` if something was released without noise.

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
    state = find_state(model)
    run = state.run if state else None
    return statement(
        ledger_of(model),
        delta_of(model, delta),
        accountant=accountant_of(model),
        num_examples=run.sampling.num_examples if run is not None else None,
        notes=notes_of(model),
        max_examples_per_user=max_examples_per_user,
    )


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
