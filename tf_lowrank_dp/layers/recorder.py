"""The recorder: what a private step remembers of a forward pass.

While a recorder is active, each capture layer hands it the tensor whose gradient it needs (its
pre-activation) together with functions that turn this gradient into the per-example gradients of
the layer's variables.  One ``tape.gradient`` over the recorded tensors then replaces the kernel
gradients of ordinary training.  Without an active recorder capture layers are plain Keras layers.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import keras
import tensorflow as tf

from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.layers.not_recorded import other_rows
from tf_lowrank_dp.layers.operations import Root, Step, meetings
from tf_lowrank_dp.per_example.gradient import PerExampleGradient
from tf_lowrank_dp.per_example.units import SumOfRows
from tf_lowrank_dp.tracing.example_axis import Label, Rows

_ACTIVE = threading.local()

Builder: TypeAlias = tuple[keras.Variable, Callable[..., PerExampleGradient]]
"""A variable and the function from the gradients of what was recorded to its own."""

Builders: TypeAlias = list[Builder]


@dataclasses.dataclass(frozen=True)
class Site:
    """One recorded call of one layer.

    Attributes:
        layer: name of the layer, for messages.
        outputs: the watched tensors, each `(b, ...)`.
        builders: pairs of a Keras variable and a function from the gradients of the summed loss
            with respect to `outputs` to this variable's per-example gradient.
        rows: where the examples are in `outputs`.
        read: what else the builders have read, and what it has to hold of the examples.
    """

    layer: str
    outputs: tuple[tf.Tensor, ...]
    builders: tuple[Builder, ...]
    rows: Rows = Rows(0)
    read: list[tuple[tf.Tensor, Label]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a trial has found, see `operations`.

    Attributes:
        by_operations: ids of the layers whose own weights are found by the operations that use
            them; None in the trial, where all are tried but those of `fallback`.
        fallback: ids of the layers that use the fallback.
        shared_outputs: which calls of `Recorder.watch` get a tensor without examples.
        steps: the operations that use weights or such tensors.
        of_examples: for each call of a fallback, which of its tensors have the axis of examples.
        rows_each: which calls of `Recorder.watch` get tensors with several rows of each example,
            next to each other, and how many.
    """

    by_operations: frozenset[int] | None = frozenset()
    fallback: frozenset[int] = frozenset()
    shared_outputs: frozenset[int] = frozenset()
    steps: tuple[Step, ...] = ()
    of_examples: tuple[tuple[bool, ...], ...] = ()
    rows_each: tuple[tuple[int, int], ...] = ()


class Recorder:
    """Collects the sites of one forward pass; use it as a context manager.

    A capture gets one from `current_recorder` and makes none itself.

    Args:
        variables: the trainable Keras variables whose per-example gradients are wanted.
        tape: the `tf.GradientTape` that watches the recorded tensors.
        size: number of examples, an integer or a scalar tensor; if None, nothing is repeated or
            checked.
        plan: which weights are found by the operations that use them.

    Attributes:
        sites: what was recorded.
        inside_of_a_loop: a variable of the layer that was refused as it runs in a loop or branch.

    Example: what a step does with what a capture records.

    >>> from tf_lowrank_dp.per_example.activations import broadcast_gradient
    >>> bias, x = tf.Variable([1.0, 2.0]), tf.ones((3, 2))
    >>> with tf.GradientTape() as tape, Recorder([bias], tape) as recorder:
    ...     builder = (bias, lambda d: broadcast_gradient(d, bias.shape))
    ...     (z,) = recorder.watch("shift", [x + bias], [builder])
    ...     loss = tf.reduce_sum(z**2)
    >>> [site] = recorder.sites
    >>> site.builders[0][1](*tape.gradient(loss, site.outputs)).materialize().numpy().tolist()
    [[4.0, 6.0], [4.0, 6.0], [4.0, 6.0]]
    """

    def __init__(
        self,
        variables: Sequence,
        tape: tf.GradientTape,
        size: int | tf.Tensor | None = None,
        plan: Plan = Plan(),
    ):
        self._plan = plan
        self._calls = 0
        self.roots: list[Root] = []
        self.fallback_tensors: list[list] = []
        self._wanted = {id(variable) for variable in variables}
        self._tape = tape
        self._size = size
        self._graph = current_graph()
        self.sites: list[Site] = []
        self.inside_of_a_loop: keras.Variable | None = None

    def __enter__(self) -> Recorder:
        _stack().append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        _stack().pop()

    def watch(
        self,
        layer: str,
        outputs: Sequence[tf.Tensor],
        builders: Iterable[Builder],
        read: list[tuple[tf.Tensor, Label]] | None = None,
    ) -> list:
        """Watches `outputs` for the sake of the variables in `builders` that are trained.

        Args:
            layer: name of the layer, for messages.
            outputs: tensors `(b, ...)`, results of the layer before its activation; one that all
                examples share, `(1, ...)`, is repeated for each of them.  Where examples were
                joined with another axis, `(b k, ...)`, gradients of their rows are added up.
            builders: pairs `(variable, function)`; the function takes one gradient for each
                output and returns a `PerExampleGradient`.
            read: a list to which the builders add what else they read of the forward pass than
                `outputs` were computed from, and what it has to hold of the examples.

        Returns:
            The tensors to continue the forward pass with.

        Raises:
            UnsupportedModelError: the layer runs inside a loop or branch of its parent, where its
                tensors cannot be reached from outside; or the first axis of an output is not
                that of the examples.
        """
        wanted = [b for b in builders if id(b[0]) in self._wanted]
        if not wanted:
            return list(outputs)
        if current_graph() is not self._graph:
            self.inside_of_a_loop = wanted[0][0]
            raise UnsupportedModelError(
                f"Expected layer '{layer}' to run directly in the model's forward pass. Received: "
                "a call inside a loop or branch (tf.while_loop, tf.cond, tf.vectorized_map) of "
                "the model, from which no per-example gradient can be taken. Put the loop into a "
                "layer of its own, which is then differentiated as a whole, or use "
                "gradient_method='vectorized' or 'loop'."
            )
        self._calls += 1
        if self._is_shared(outputs):
            return [self._shared_output(layer, outputs[0], wanted)]
        each = dict(self._plan.rows_each).get(self._calls, 1)
        if each > 1:
            outputs = [tf.identity(output) for output in outputs]
            wanted = [(variable, _summed(build, each)) for variable, build in wanted]
        else:
            outputs = [self._with_examples(layer, output) for output in outputs]
        for output in outputs:
            self._tape.watch(output)
        of_examples = Rows(0, each)
        self.sites.append(
            Site(layer, tuple(outputs), tuple(wanted), of_examples, [] if read is None else read)
        )
        return outputs

    def finds_operations(self, layer: keras.layers.Layer) -> bool:
        """Whether a layer's own weights are found by the operations that use them."""
        if self._plan.by_operations is None:
            return id(layer) not in self._plan.fallback
        return id(layer) in self._plan.by_operations

    def root(
        self, layer: keras.layers.Layer, variable: keras.Variable, value: tf.Tensor
    ) -> tf.Tensor:
        """A copy of a weight's value for one call of a layer: its uses are looked for."""
        tensor = tf.identity(value)
        self._tape.watch(tensor)
        builder = (variable, lambda gradient: gradient)
        self.roots.append(Root(layer.name, tensor, (builder,), owner=layer))
        return tensor

    def with_examples(self, tensors: Sequence) -> list[bool]:
        """Which tensors, that a call of a fallback gets or draws, have the axis of examples.

        Args:
            tensors: anything; what is no tensor has none.
        """
        self.fallback_tensors.append(list(tensors))
        known = self._plan.of_examples[len(self.fallback_tensors) - 1 :][:1]
        if known and len(known[0]) == len(tensors):
            return list(known[0])
        size = self._size if isinstance(self._size, int) else None
        return [has_rows(tensor) and tensor.shape[0] == size for tensor in tensors]

    def find_operations(self) -> None:
        """Adds the sites of the operations that use weights, when the forward pass has ended."""
        if self.roots:
            assert self._graph is not None
            for found in meetings(self._graph, self.roots, self._plan.steps):
                site = Site(found.layer, (found.output,), found.builders, found.rows)
                self.sites.append(site)

    def _is_shared(self, outputs: Sequence[tf.Tensor]) -> bool:
        """Whether a layer's output is the same for all examples, without an axis of them."""
        if self._plan.by_operations is not None:
            return self._calls in self._plan.shared_outputs
        shape = outputs[0].shape
        return len(outputs) == 1 and bool(shape.rank) and shape[0] not in (1, self._size)

    def _shared_output(self, layer: str, output: tf.Tensor, wanted: Sequence[Builder]) -> tf.Tensor:
        tensor = tf.identity(output)
        self._tape.watch(tensor)
        builders = [(v, lambda g, build=build: build(g.materialize())) for v, build in wanted]
        self.roots.append(Root(layer, tensor, tuple(builders), call=self._calls))
        return tensor

    def _with_examples(self, layer: str, output: tf.Tensor) -> tf.Tensor:
        """The output as a tensor of its own, with one row for each example."""
        rows = 0 if output.shape.rank == 0 else output.shape[0]
        size = self._size if isinstance(self._size, int) else None
        if self._size is None or rows is None or rows == size:
            return tf.identity(output)
        if rows == 1:
            return tf.repeat(output, self._size, axis=0)
        raise other_rows(layer, tuple(output.shape), size or "unknown")


def _summed(build: Callable[..., PerExampleGradient], each: int) -> Callable[..., SumOfRows]:
    """The sum over the rows of each example of what a builder makes of rows."""

    def summed(*gradients: tf.Tensor) -> SumOfRows:
        return SumOfRows(build(*gradients), tf.ones([tf.shape(gradients[0])[0] // each, each]))

    return summed


def current_recorder() -> Recorder | None:
    """The innermost active recorder of this thread, or None: then a capture is a plain layer.

    Example:

    >>> current_recorder() is None
    True
    """
    stack = _stack()
    return stack[-1] if stack else None


def has_rows(leaf: Any) -> bool:
    """Whether something is a tensor with a first axis."""
    return tf.is_tensor(leaf) and leaf.shape.rank != 0


class paused:
    """Context in which no recorder is active (a layer is called again for its own Jacobian)."""

    def __enter__(self) -> None:
        _stack().append(None)

    def __exit__(self, *exc: object) -> None:
        _stack().pop()


def _stack() -> list:
    if not hasattr(_ACTIVE, "stack"):
        _ACTIVE.stack = []
    return _ACTIVE.stack


def current_graph() -> tf.Graph | None:
    """The graph that is being built, None in eager mode."""
    return None if tf.executing_eagerly() else tf.compat.v1.get_default_graph()
