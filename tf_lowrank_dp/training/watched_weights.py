"""What changes weights in `fit`, `evaluate` and `predict` besides private steps is told.

Guarantee: what other code does to weights on which something was spent, such as ordinary training
of a model that shares them in a callback, a `test_step` or a metric, is not taken for
post-processing: their prior spend is unknown then, however the call ends.  The weights are looked
at before the first step of an epoch, after its last, and where the call ends; around every step
where a callback may act between two.

Not claimed: what generators of data and other threads change while the steps of an epoch are
taken passes for what these have changed.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence

import keras

from tf_lowrank_dp._keras.class_names import is_stock
from tf_lowrank_dp._types import Logs
from tf_lowrank_dp.optimizers.ledger_in_file import values_of
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.training.state import look

_BETWEEN_STEPS = (
    *("on_batch_begin", "on_batch_end"),
    *("on_train_batch_begin", "on_train_batch_end"),
)


@contextlib.contextmanager
def changes_are_told(model: keras.Model) -> Iterator[None]:
    """Looks at the weights when a call of `fit`, `evaluate` or `predict` ends, however it does."""
    try:
        yield
    finally:
        tell_changes(model)


@contextlib.contextmanager
def known_to_graphs(model: keras.Model) -> Iterator[None]:
    """Knows the weights of a `fit` from its beginning on, and tells graphs what it has left."""
    SPENDING.remember(values_of(model))
    try:
        yield
    finally:
        SPENDING.expect(values_of(model))


def tell_changes(model: keras.Model) -> None:
    """Looks at the weights, and warns where others than private steps have changed them."""
    if look(model):
        warnings.warn(
            f"Expected weights of '{model.name}' that private steps have left. Received: others, "
            "which a callback or other code has assigned since: more may have been spent on them, "
            'and statements say "prior spend unknown" from now on. If they are a '
            "function of the weights alone, such as an average, assign them inside of "
            "tfdp.post_processing(model), or use keras.callbacks.SwapEMAWeights.",
            stacklevel=2,
        )


def as_list(callbacks: object) -> list[keras.callbacks.Callback]:
    """Callbacks one by one, as Keras calls them, with looks around those that swap averages.

    Args:
        callbacks: what `fit` takes: one, nested lists, a `CallbackList` or None.
    """
    found: list[keras.callbacks.Callback] = []
    for each in keras.tree.flatten(callbacks):
        if isinstance(each, keras.callbacks.CallbackList):
            found += as_list(each.callbacks)
        elif isinstance(each, keras.callbacks.SwapEMAWeights) and _is_all_stock(each):
            found += [_Around(tell_changes), each, _Around(_know)]
        elif each is not None:
            found.append(each)
    return found


def act_between_steps(callbacks: Sequence[keras.callbacks.Callback]) -> bool:
    """Whether code that is not Keras' own runs between two steps of an epoch, as they are now."""
    return any(_acts_between_steps(callback) for callback in callbacks)


def _acts_between_steps(callback: keras.callbacks.Callback) -> bool:
    hooks = [getattr(callback, name, None) for name in _BETWEEN_STEPS]
    defaults = [getattr(keras.callbacks.Callback, name) for name in _BETWEEN_STEPS]
    own = [
        hook
        for hook, default in zip(hooks, defaults, strict=True)
        if hook is not None and getattr(hook, "__func__", hook) is not default
    ]
    return bool(own) and not all(map(is_stock, [type(callback), *own]))


def _is_all_stock(callback: keras.callbacks.SwapEMAWeights) -> bool:
    """Whether a subclass has no methods of its own instead of Keras'."""
    names = [name for name in dir(keras.callbacks.SwapEMAWeights) if not name.startswith("__")]
    return all(map(is_stock, filter(callable, [getattr(callback, name) for name in names])))


class _Around(keras.callbacks.Callback):
    """Calls a function of the model wherever `SwapEMAWeights` may swap."""

    def __init__(self, act: Callable[[keras.Model], None]):
        super().__init__()
        self._act = act

    def on_epoch_begin(self, epoch: int, logs: Logs = None) -> None:
        self._act(self.model)

    def on_epoch_end(self, epoch: int, logs: Logs = None) -> None:
        self._act(self.model)

    def on_test_begin(self, logs: Logs = None) -> None:
        self._act(self.model)

    def on_test_end(self, logs: Logs = None) -> None:
        self._act(self.model)

    def on_predict_begin(self, logs: Logs = None) -> None:
        self._act(self.model)

    def on_predict_end(self, logs: Logs = None) -> None:
        self._act(self.model)


def _know(model: keras.Model) -> None:
    """Takes what a swap has left: averages of released values, or these, but for rounding."""
    SPENDING.see(values_of(model))
