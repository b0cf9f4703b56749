"""A running `fit` and its step: what is executed is what is counted, on the data of that `fit`.

Keras looks up `model.train_function` before every step, so whatever happens in a callback, a
generator or another thread could exchange the step.  Therefore a model has one `fit` at a time,
`fit` checks before every execution that its run is still that of the model, and train functions
belong to one run and work only where `fit` has just allowed an execution.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import threading
import weakref
from collections.abc import Callable, Iterator

import keras

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import NotPrivateError
from tf_lowrank_dp.spending.record import grow_elsewhere
from tf_lowrank_dp.training.state import Run, find_state, state_of


@dataclasses.dataclass
class _Fit:
    """A `fit` at work.

    Attributes:
        run: what it counts.
        steps_per_execution: of the model when it began; Keras' loop keeps to that.
        thread: the thread that may execute once, as its next execution was checked; or None.
    """

    run: Run
    steps_per_execution: int
    thread: int | None = None


# Past make_private and make_standard, which a callback may call.
_FITS: weakref.WeakKeyDictionary[keras.Model, _Fit] = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()
_EXECUTED: contextvars.ContextVar[Run | None] = contextvars.ContextVar("executed", default=None)


@contextlib.contextmanager
def running(model: keras.Model, run: Run) -> Iterator[None]:
    """Marks a model as being trained by `fit`.

    Guarantee: what is checked against a budget is all that is being spent: two models that share
    weights are not trained in two threads.

    Raises:
        RuntimeError: it is already, or another model with its weights is, in another thread.
    """
    with _LOCK:
        refuse_nesting(model)
        _refuse_shared_weights(model)
        _FITS[model] = _Fit(run, model.steps_per_execution)
        run.record.trained_in = threading.get_ident()
    try:
        yield
    finally:
        run.record.trained_in, run.look_again = None, None
        del _FITS[model]


def refuse_nesting(model: keras.Model) -> None:
    """Refuses another run of a model while `fit` trains it.

    Raises:
        RuntimeError: `fit` trains it.
    """
    if model in _FITS:
        raise RuntimeError(
            "Expected one training of a private model at a time. Received: another one of "
            f"'{model.name}' while its fit is running, from a callback, its data or another "
            "thread, whose steps would be counted as the other's. Train on after fit has ended, "
            "or train another model."
        )


def _refuse_shared_weights(model: keras.Model) -> None:
    mine = {id(variable) for variable in model.variables}
    for other, fit in _FITS.items():
        shared = any(id(variable) in mine for variable in fit.run.variables)
        if shared and grow_elsewhere([fit.run.record]):
            raise RuntimeError(
                "Expected one training of a weight at a time. Received: the fit of "
                f"'{model.name}' while that of '{other.name}', which has weights in common with "
                "it, is running in another thread: neither budget would know of the other's "
                "steps. Train one after the other."
            )


def allow_execution(model: keras.Model) -> None:
    """Allows this thread one call of the train function, if `check_run` finds nothing."""
    check_run(model)
    _FITS[model].thread = threading.get_ident()


def check_run(model: keras.Model) -> None:
    """Checks that the run of the running `fit` is still that of the model.

    Raises:
        NotPrivateError: model, optimizer or loss have been exchanged since `fit` began.
        ValueError: `steps_per_execution` has been changed: an execution would not have the steps
            that are checked against the budget.
    """
    fit, state = _FITS[model], find_state(model)
    run = fit.run
    if model.steps_per_execution != fit.steps_per_execution:
        raise ValueError(
            f"Expected steps_per_execution={fit.steps_per_execution}, as it was when fit began. "
            f"Received: {model.steps_per_execution}. Change it between two calls of fit."
        )
    if not (
        state is not None
        and state.run is run
        and model.optimizer is run.optimizer
        and run.loss is not None
        and run.loss.is_current
    ):
        raise NotPrivateError(
            f"Expected '{model.name}' to be compiled and private as it was when fit began. "
            "Received: a model that was compiled or converted anew, another optimizer, or one "
            "that another model has taken. Its next step would not be the one that is counted. "
            "Change the model after fit has ended."
        )


def bound_to_run(model: keras.Model, function: Callable) -> Callable:
    """Keras' train function, for the present run only and only where `fit` has allowed it."""
    run, steps = state_of(model).run, model.steps_per_execution

    def train_function(iterator: Iterator) -> Nested:
        fit = _FITS.get(model)
        if fit is None or fit.run is not run or fit.thread != threading.get_ident():
            raise NotPrivateError(
                "Expected a train function that is called by its fit, which knows how the batches "
                "are sampled. Received: a call by hand, or a train function of an earlier fit. "
                "Use model.fit, or tfdp.PrivateTrainer in a custom loop."
            )
        fit.thread = None
        with executing(run):
            return function(iterator)

    train_function.steps_per_execution = steps  # type: ignore[attr-defined]  # traced for these
    return train_function


@contextlib.contextmanager
def executing(run: Run) -> Iterator[None]:
    """Where `train_step` works, as a step of this run."""
    token = _EXECUTED.set(run)
    try:
        yield
    finally:
        _EXECUTED.reset(token)


def executed_run(model: keras.Model) -> Run:
    """The run whose step is being executed or traced.

    Raises:
        NotPrivateError: none is, or that of another model or of an earlier `fit`.
    """
    run = _EXECUTED.get()
    if run is None or run.loss is None or run is not state_of(model).run:
        raise NotPrivateError(
            "Expected a model that knows how its batches are sampled. Received: a call of "
            "train_step outside of fit. Use model.fit, or tfdp.PrivateTrainer in a custom loop."
        )
    return run
