"""Checks of arguments, with one wording: what was expected, what was received, the remedy.

Each helper takes the argument by its name, so that the message names it, and returns it as a plain
Python number:

>>> steps = integer_at_least(1, steps=3)
>>> positive(l2_norm_clip=-1.0)
Traceback (most recent call last):
    ...
ValueError: Expected `l2_norm_clip` to be a positive, finite number. Received: l2_norm_clip=-1.0. \
Pass a number above 0.

Booleans, NaN and None are refused everywhere: a `True` that becomes 1.0 is a mistake, and a NaN
passes every comparison that is written as a refusal.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

_LEAST_CLIP = 1e-12
_LARGEST_CLIP = 1e18


def positive(*, remedy: str = "Pass a number above 0.", **named: Any) -> float:
    """The named value as a float above 0 and below infinity.

    Args:
        remedy: last sentence of the error message.
        **named: exactly one argument, by its name.

    Raises:
        ValueError: the value is anything else.

    Example:

    >>> positive(epsilon=3)
    3.0
    """
    name, value = _only(named)
    if not _is_real(value) or not 0 < value < math.inf:
        raise error("to be a positive, finite number", remedy, **named)
    return float(value)


def non_negative(*, remedy: str = "Pass 0 or a number above it.", **named: Any) -> float:
    """The named value as a float of at least 0 and below infinity.

    Args:
        remedy: last sentence of the error message.
        **named: exactly one argument, by its name.

    Raises:
        ValueError: the value is anything else.

    Example:

    >>> non_negative(noise_multiplier=0)
    0.0
    """
    name, value = _only(named)
    if not _is_real(value) or not 0 <= value < math.inf:
        raise error("to be a non-negative, finite number", remedy, **named)
    return float(value)


def positive_or_infinite(
    *, remedy: str = "Pass a number above 0, or `math.inf`.", **named: Any
) -> float:
    """The named value as a float above 0; infinity is allowed.

    Args:
        remedy: last sentence of the error message.
        **named: exactly one argument, by its name.

    Raises:
        ValueError: the value is anything else.

    Example:

    >>> positive_or_infinite(l2_norm_clip=float("inf"))
    inf
    """
    name, value = _only(named)
    if not _is_real(value) or not value > 0:
        raise error("to be a positive number or infinity", remedy, **named)
    return float(value)


def clip_norm(**named: Any) -> float:
    """The named value as `positive_or_infinite` does, if float32 holds its square.

    Raises:
        ValueError: the value is anything else.
    """
    clip = positive_or_infinite(**named)
    [name] = named
    if _LARGEST_CLIP < clip < math.inf:
        raise error(f"of at most {_LARGEST_CLIP}, or infinity", "Scale the loss.", **named)
    if clip < _LEAST_CLIP:
        raise ValueError(
            f"Expected {name} of at least {_LEAST_CLIP}. Received: {clip}. Squares "
            "of such small norms vanish in float32, so they could not be clipped. Scale the loss."
        )
    return clip


def probability(
    *, remedy: str = "Pass a probability above 0 and at most 1.", **named: Any
) -> float:
    """The named value as a float in (0, 1].

    Args:
        remedy: last sentence of the error message.
        **named: exactly one argument, by its name.

    Raises:
        ValueError: the value is anything else.

    Example:

    >>> probability(sampling_rate=0.25)
    0.25
    """
    name, value = _only(named)
    if not _is_real(value) or not 0 < value <= 1:
        raise error("to be a number above 0 and at most 1", remedy, **named)
    return float(value)


def below_one(
    *, remedy: str = "Pass a value well below 1 / number of examples, such as 1e-5.", **named: Any
) -> float:
    """The named value as a float in (0, 1), as a privacy parameter delta has to be.

    Args:
        remedy: last sentence of the error message.
        **named: exactly one argument, by its name.

    Raises:
        ValueError: the value is anything else.

    Example:

    >>> below_one(delta=1e-5)
    1e-05
    """
    name, value = _only(named)
    if not _is_real(value) or not 0 < value < 1:
        raise error("to be a number above 0 and below 1", remedy, **named)
    return float(value)


def fraction(*, remedy: str = "Pass a fraction such as 0.5.", **named: Any) -> float:
    """The named value as a float in [0, 1).

    Args:
        remedy: last sentence of the error message.
        **named: exactly one argument, by its name.

    Raises:
        ValueError: the value is anything else.

    Example:

    >>> fraction(sparsity=0.5)
    0.5
    """
    name, value = _only(named)
    if not _is_real(value) or not 0 <= value < 1:
        raise error("to be a number of at least 0 and below 1", remedy, **named)
    return float(value)


def integer_at_least(minimum: int, /, *, remedy: str = "", **named: Any) -> int:
    """The named value as an int of at least `minimum`.

    Args:
        minimum: the least value allowed.
        remedy: last sentence of the error message.
        **named: exactly one argument, by its name. Python's and NumPy's integers are accepted,
            floats are not, even if they are whole.

    Raises:
        ValueError: the value is anything else.

    Example:

    >>> integer_at_least(1, batch_size=32)
    32
    """
    name, value = _only(named)
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or value < minimum:
        remedy = remedy or f"Pass an integer of at least {minimum}, without a decimal point."
        raise error(f"to be an integer of at least {minimum}", remedy, **named)
    return int(value)


def one_of(choices: Sequence[str], /, *, remedy: str = "Pass one of them.", **named: Any) -> str:
    """The named value, which is one of `choices`.

    Args:
        choices: the values allowed.
        remedy: last sentence of the error message.
        **named: exactly one argument, by its name.

    Raises:
        ValueError: the value is anything else.

    Example:

    >>> one_of(("pld", "rdp"), accountant="pld")
    'pld'
    """
    name, value = _only(named)
    if not isinstance(value, str) or value not in choices:
        listed = " or ".join(repr(choice) for choice in choices)
        raise error(f"to be {listed}", remedy, **named)
    return value


def epsilon_delta_or_noise_multiplier(
    *, epsilon: Any = None, delta: Any = None, noise_multiplier: Any = None
) -> tuple[float | None, float | None, float | None]:
    """Checks that a mechanism has either a privacy budget or a noise multiplier.

    Accepted are `epsilon` and `delta` (the noise is calibrated to them), or `noise_multiplier` with
    or without `delta` (which then only serves to report epsilon). A noise multiplier of 0 is
    allowed: it means epsilon = infinity.

    Args:
        epsilon: target epsilon, above 0, or None.
        delta: target delta, in (0, 1), or None.
        noise_multiplier: standard deviation of the noise / l2_norm_clip, at least 0, or None.

    Returns:
        The three values as floats, or None where none was given.

    Raises:
        ValueError: both or neither of `epsilon` and `noise_multiplier`, `epsilon` without `delta`,
            or a value out of its range.

    Example:

    >>> epsilon_delta_or_noise_multiplier(epsilon=3, delta=1e-5)
    (3.0, 1e-05, None)
    """
    if (epsilon is None) == (noise_multiplier is None):
        which = "neither" if epsilon is None else "both"
        raise ValueError(
            "Expected either `epsilon` with `delta`, or `noise_multiplier`. "
            f"Received: {which}, epsilon={epsilon!r}, noise_multiplier={noise_multiplier!r}. "
            "Pass epsilon=... and delta=... to have the noise calibrated, or noise_multiplier=... "
            "to choose it."
        )
    if epsilon is not None and delta is None:
        raise ValueError(
            f"Expected `delta` together with `epsilon`. Received: epsilon={epsilon!r}, delta=None. "
            "Pass delta=..., well below 1 / number of examples, such as 1e-5."
        )
    return (
        None if epsilon is None else positive(epsilon=epsilon),
        None if delta is None else below_one(delta=delta),
        None if noise_multiplier is None else non_negative(noise_multiplier=noise_multiplier),
    )


def error(expected: str, remedy: str, /, **named: Any) -> ValueError:
    """A `ValueError` in the package's wording, for checks that are made nowhere else.

    Args:
        expected: what the argument was expected to be, such as "to be even".
        remedy: a sentence that says what to do.
        **named: exactly one argument, by its name.

    Example:

    >>> print(error("to be even", "Pass an even number.", rank=3))
    Expected `rank` to be even. Received: rank=3. Pass an even number.
    """
    name, value = _only(named)
    return ValueError(f"Expected `{name}` {expected}. Received: {name}={value!r}. {remedy}")


def _only(named: dict[str, Any]) -> tuple[str, Any]:
    """The one name and its value."""
    ((name, value),) = named.items()
    return name, value


def _is_real(value: Any) -> bool:
    """Tells whether `value` is a Python or NumPy real number and no boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)
