"""All that the choice of a release space may depend on."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_lowrank_dp.algorithms.state import AlgorithmState
from tf_lowrank_dp.per_example.parameter import Parameter
from tf_lowrank_dp.release.held_basis import Anchor
from tf_lowrank_dp.release.selection import groups_of
from tf_lowrank_dp.release.space import Normal

PublicGradients = Callable[..., list[Anchor]]
"""`(features, labels, num_classes=None)` of public examples to their gradients at the present
weights, for each variable; with `num_classes` the labels are classes `(m,)`, otherwise what the
loss takes."""


@dataclasses.dataclass(frozen=True)
class ReleaseContext:
    """What an algorithm is given when a training run starts; all of it is public.

    Attributes:
        parameters: the trainable variables.
        normal: public random numbers, other than those of the noise.
        step: gives the number of updates of the weights so far, an integer scalar tensor; called
            in `refresh`, at each step.
        state: what the algorithm keeps between steps, runs and files.
        clipping: "flat" or "per_layer": which variables are clipped together.
        public_gradients: differentiates public examples; None where no loss is known.

    Example:

    >>> bias = Parameter(tf.Variable([1.0, 2.0]), "other", None, False)
    >>> context = ReleaseContext(
    ...     [bias],
    ...     normal=lambda shapes: [tf.random.normal(shape) for shape in shapes],
    ...     step=lambda: tf.constant(0),
    ...     state=AlgorithmState(),
    ... )
    >>> context.groups
    [[0]]
    """

    parameters: Sequence[Parameter]
    normal: Normal
    step: Callable[[], tf.Tensor]
    state: AlgorithmState
    clipping: str = "flat"
    public_gradients: PublicGradients | None = None

    @property
    def groups(self) -> list[list[int]]:
        """Positions of the variables that are clipped together, as `clipping` says."""
        return groups_of(self.parameters, self.clipping)
