"""What the low-rank and sparse optimizers share: which matrices they treat in their own way."""

from __future__ import annotations

from collections.abc import Sequence

from tf_lowrank_dp import _validate
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.selection import selected_matrices


class MatrixOptimizer(DPOptimizer):
    """Base of the optimizers that release something smaller than the gradient of each matrix.

    Treated are the kernels that are not of an output layer; the others are released in full.

    Args:
        include: parts of variable paths: matrices to treat whatever the defaults say, embeddings
            and output layers as well.
        exclude: parts of variable paths: matrices to release in full.
        **kwargs: see `DPOptimizer`.
    """

    def __init__(
        self, optimizer, *, include: Sequence[str] = (), exclude: Sequence[str] = (), **kwargs
    ):
        for name, parts in (("include", include), ("exclude", exclude)):
            if isinstance(parts, str) or not all(isinstance(part, str) for part in parts):
                raise _validate.error(
                    "to be a list of strings", "Pass parts of variable paths.", **{name: parts}
                )
        super().__init__(optimizer, **kwargs)
        self.include, self.exclude = list(include), list(exclude)

    def treats(self, parameter: Parameter) -> bool:
        """Whether a kernel that is not of an output layer is treated by default."""
        return True

    def selected(self, parameters: Sequence[Parameter]) -> list[int]:
        """Positions of the matrices that are treated."""
        return selected_matrices(parameters, self.include, self.exclude, self.treats)

    def get_config(self) -> dict:
        return {**super().get_config(), "include": self.include, "exclude": self.exclude}


class RankOptimizer(MatrixOptimizer):
    """`MatrixOptimizer` with a rank and power iterations.

    By default treated are the kernels `(m, n)` where two carriers have at most half as many
    numbers, `2 rank (m + n) <= m n`.

    Args:
        rank: number of directions that are followed for each matrix, at most its smaller side.
        power_iterations: how often the directions are refined; 1 is enough (RGP, Section 3.3).
        **kwargs: see `MatrixOptimizer`.
    """

    def __init__(self, optimizer, *, rank: int = 8, power_iterations: int = 1, **kwargs):
        _validate.integer_at_least(1, rank=rank)
        _validate.integer_at_least(1, power_iterations=power_iterations)
        super().__init__(optimizer, **kwargs)
        self.rank, self.power_iterations = rank, power_iterations

    def treats(self, parameter: Parameter) -> bool:
        m, n = parameter.view.rows, parameter.view.columns
        return 2 * self.rank * (m + n) <= m * n

    def ranks(self, parameters: Sequence[Parameter]) -> dict[int, int]:
        """The rank by the position of each matrix that is treated."""
        views = {index: parameters[index].view for index in self.selected(parameters)}
        return {i: min(self.rank, view.rows, view.columns) for i, view in views.items()}

    def get_config(self) -> dict:
        own = {"rank": self.rank, "power_iterations": self.power_iterations}
        return {**super().get_config(), **own}
