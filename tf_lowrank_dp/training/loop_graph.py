"""The releases of a custom loop in eager mode: one graph for a `forward`, looked at again."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable

import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.training.function_code import Code
from tf_lowrank_dp.training.given_forward import spec_of, with_outputs
from tf_lowrank_dp.training.judged_graphs import JudgedGraphs

_LOOKS = frozenset(2 * 4**k for k in range(32))  # the releases before which it is looked at again


class LoopGraph:
    """The release of a batch as a graph.

    The graph holds what `forward` has used when it was traced.  What a loop computes from its
    batches, and `forward` reaches in a way that `Code` does not follow (a property, a class
    attribute, `getattr`), would be a constant of it, and one example would act on the gradients of
    all.  Such a constant is another one when the function is traced again, as it is at the second
    release of batches of one shape and, ever more rarely, later.

    Args:
        forward: as of `PrivateTrainer.gradients`.
        engine: that releases.
        judge: of the forward and backward pass.
    """

    def __init__(self, forward: Callable, engine: PrivateGradients, judge: JudgedGraphs):
        checked = with_outputs(forward)
        self._judge = judge
        self._releases: Counter[str] = Counter()  # of each shape

        @tf.function(autograph=False)
        def release(batch: Nested, presence: tf.Tensor) -> list[tf.Tensor]:
            return engine.private_gradients(checked, batch, presence, watched=judge.watched)

        self._release = release

    def look_again(self, forward: Callable, batch: Nested) -> None:
        """Traces `forward` again before some releases, the second first.

        Args:
            forward: as this batch has it; it may be made anew at each step.
            batch: nested tensors `(b, ...)`.

        Raises:
            UnsupportedModelError: it gives another graph than it gave.
        """
        spec = tf.nest.map_structure(spec_of, batch)
        shape = str(spec)
        if self._releases[shape] + 1 in _LOOKS:
            self._judge.look_again(with_outputs(forward), spec)
        self._releases[shape] += 1

    def gradients(self, batch: Nested, presence: tf.Tensor) -> list[tf.Tensor]:
        """Releases nested tensors `(b, ...)` with a presence `(b,)`."""
        specs = tf.nest.map_structure(spec_of, (batch, presence))
        return self._release.get_concrete_function(*specs)(batch, presence)


@dataclasses.dataclass
class JudgedForward:
    """A function of a custom loop, as it was when it was judged.

    Attributes:
        code: what it was made of.
        judge: of its graphs.
        graph: of its releases in eager mode, None before the first.
    """

    code: Code
    judge: JudgedGraphs
    graph: LoopGraph | None = None
