"""What an algorithm is: settings, and the release space that they make."""

from __future__ import annotations

import abc
import dataclasses
import math
from typing import Any, ClassVar

from tf_lowrank_dp.algorithms.context import ReleaseContext
from tf_lowrank_dp.release.public_data import PublicData
from tf_lowrank_dp.release.space import ReleaseSpace


class Algorithm(abc.ABC):
    """An algorithm as a value; subclasses are frozen dataclasses, whose fields are its settings.

    A field that is an algorithm itself stands for the settings of that one.

    Formal guarantee: whatever an algorithm does, a step is one Gaussian release of what its space
    projects.  Its space is made from a `ReleaseContext`, which holds nothing private.

    Example:

    >>> from tf_lowrank_dp.release.identity import IdentitySpace
    >>> @dataclasses.dataclass(frozen=True)
    ... class Plain(Algorithm):
    ...     name = "plain"
    ...
    ...     def release_space(self, context):
    ...         return IdentitySpace(context.parameters, context.groups)
    >>> Plain().block_clips(l2_norm_clip=1.0, num_blocks=4)
    (0.5, 0.5, 0.5, 0.5)
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    @abc.abstractmethod
    def name(self) -> str:
        """Of the mechanism, in ledgers and reports."""

    public_data: PublicData | None = None
    """Public examples, of an algorithm that uses some; not among what is saved."""

    @abc.abstractmethod
    def release_space(self, context: ReleaseContext) -> ReleaseSpace:
        """What a training run that starts now releases.

        Args:
            context: all that the choice may depend on.

        Raises:
            ValueError: the settings fit none of the variables.
        """

    def block_clips(self, l2_norm_clip: float, num_blocks: int) -> tuple[float, ...]:
        """Largest norm of an example's part in each block; squares add up to `l2_norm_clip^2`."""
        return (l2_norm_clip / math.sqrt(num_blocks),) * num_blocks


def settings_of(algorithm: Algorithm) -> dict[str, Any]:
    """The settings by name, those of algorithms inside included; without public data.

    Example:

    >>> from tf_lowrank_dp.algorithms import LSG, RGP
    >>> settings_of(LSG(RGP(rank=4), sparsity=0.25))["rank"]
    4
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if isinstance(value, Algorithm):
            found.update(settings_of(value))
        elif field.name != "public_data":
            found[field.name] = _as_lists(value)
    return found


def _as_lists(value: Any) -> Any:
    """Tuples as lists, as they are in configs that were read from a file."""
    return [_as_lists(part) for part in value] if isinstance(value, list | tuple) else value
