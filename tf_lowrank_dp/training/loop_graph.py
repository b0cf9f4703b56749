"""The releases of a custom loop in eager mode: one graph for a `forward`, looked at again."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.mechanism.engine import PrivateGradients
from tf_lowrank_dp.training.function_code import Code
from tf_lowrank_dp.training.given_forward import spec_of, with_outputs
from tf_lowrank_dp.training.judged_graphs import JudgedGraphs

_AGAIN = 2  # the release at which a graph is looked at again
_LATER = 4  # times as many releases until the next time


class LoopGraph:
    """The release of a batch as a graph.

    The graph holds what `forward` has used when it was traced.  What a loop computes from its
    batches, and `forward` reaches in a way that `Code` does not follow (a property, a class
    attribute, `getattr`), would be a constant of it, and one example would act on the gradients of
    all.  Such a constant is another one when the function is traced again, as it is at the second
    release and, ever more rarely, later.

    Args:
        forward: as of `PrivateTrainer.gradients`.
        engine: that releases.
        judge: of the forward and backward pass.
    """

    def __init__(self, forward: Callable, engine: PrivateGradients, judge: JudgedGraphs):
        checked = with_outputs(forward)
        self._code, self._judge = Code(forward), judge
        self._releases, self._next_look = 0, _AGAIN

        @tf.function(autograph=False, reduce_retracing=True)
        def release(batch: Nested, presence: tf.Tensor) -> list[tf.Tensor]:
            return engine.private_gradients(checked, batch, presence, watched=judge.watched)

        self._release = release

    def is_that_of(self, forward: Callable, judge: JudgedGraphs) -> bool:
        """Whether a function, judged so, is released by this graph."""
        return self._judge is judge and self._code.is_that_of(forward)

    def look_again(self, forward: Callable, batch: Nested) -> None:
        """Traces `forward` again before some releases, the second first.

        Args:
            forward: as this batch has it; it may be made anew at each step.
            batch: nested tensors `(b, ...)`.

        Raises:
            UnsupportedModelError: it gives another graph than it gave.
        """
        if self._releases + 1 == self._next_look:
            self._judge.look_again(with_outputs(forward), tf.nest.map_structure(spec_of, batch))
            self._next_look *= _LATER

    def gradients(self, batch: Nested, presence: tf.Tensor) -> list[tf.Tensor]:
        """Releases nested tensors `(b, ...)` with a presence `(b,)`."""
        specs = tf.nest.map_structure(spec_of, (batch, presence))
        traced = self._release.get_concrete_function(*specs)
        self._releases += 1
        return traced(batch, presence)
