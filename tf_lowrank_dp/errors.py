"""The errors of this package that are more than a wrong argument.

A wrong argument is a `ValueError` that says what was expected, what was received and the remedy.
"""

from __future__ import annotations


class PrivacyBudgetExceededError(RuntimeError):
    """The next release would spend, or past releases have spent, more than the target epsilon.

    It is raised before the release that would exceed the budget, so whatever was released until
    then stays within it. The message holds both numbers: the target and what would be spent.

    Example:

    >>> raise PrivacyBudgetExceededError("Expected epsilon of at most 3.0. Received: epsilon=3.1.")
    Traceback (most recent call last):
        ...
    tf_lowrank_dp.errors.PrivacyBudgetExceededError: Expected epsilon of at most 3.0. Received: \
epsilon=3.1.
    """


class NotPrivateError(RuntimeError):
    """A private and a standard part meet, so that no privacy guarantee would hold.

    For example a differentially private optimizer in a model that was not made private, or a
    standard optimizer in a private model. Nothing was released when it is raised.

    Example:

    >>> issubclass(NotPrivateError, RuntimeError)
    True
    """


class UnsupportedModelError(ValueError):
    """The model, its loss or one of its layers cannot be trained privately as it is.

    Nor can it where training is distributed.  The message names the layer, the argument or the
    strategy, and the remedy.

    Example:

    >>> issubclass(UnsupportedModelError, ValueError)
    True
    """


class WorkerLostError(RuntimeError):
    """One of several workers has ended, and training of the others ends with it.

    The message says what is known of the cause, and how to go on.

    Example:

    >>> issubclass(WorkerLostError, RuntimeError)
    True
    """
