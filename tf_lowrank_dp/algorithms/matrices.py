"""Which matrices an algorithm treats in its own way, and with which rank."""

from __future__ import annotations

from collections.abc import Sequence

from tf_lowrank_dp import _validate
from tf_lowrank_dp.algorithms.algorithm import Algorithm
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.selection import selected_matrices


def freeze_parts(algorithm: Algorithm, *names: str) -> None:
    """Makes tuples of settings that are parts of variable paths; for `__post_init__`.

    Args:
        algorithm: a frozen dataclass.
        names: of its fields.

    Raises:
        ValueError: one of them is no list of strings.
    """
    for name in names:
        parts = getattr(algorithm, name)
        if isinstance(parts, str) or not all(isinstance(part, str) for part in parts):
            raise _validate.error(
                "to be a list of strings", "Pass parts of variable paths.", **{name: parts}
            )
        object.__setattr__(algorithm, name, tuple(parts))


def ranks_of(
    parameters: Sequence[Parameter], rank: int, include: Sequence[str], exclude: Sequence[str]
) -> dict[int, int]:
    """The rank by the position of each matrix that is treated, at most its smaller side.

    By default these are the kernels `(m, n)`, not of an output layer, where two carriers have at
    most half as many numbers, `2 rank (m + n) <= m n`.

    Args:
        parameters: the trainable variables.
        rank: of matrices that are large enough.
        include: parts of variable paths: matrices to treat whatever the defaults say, embeddings
            and output layers as well.
        exclude: parts of variable paths: matrices to release in full.
    """

    def saves_half(parameter: Parameter) -> bool:
        m, n = parameter.matrix_view.rows, parameter.matrix_view.columns
        return 2 * rank * (m + n) <= m * n

    selected = selected_matrices(parameters, include, exclude, saves_half)
    views = {index: parameters[index].matrix_view for index in selected}
    return {i: min(rank, view.rows, view.columns) for i, view in views.items()}
