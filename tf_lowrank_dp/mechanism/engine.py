"""One logical batch through the pipeline: capture, project, clip, sum, noise, lift."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.gradient_methods.backward import Forward
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.per_example.units import MeanOfRows, Units
from tf_lowrank_dp.release.space import ReleaseSpace
from tf_lowrank_dp.tracing.random_ops import random_numbers_from
from tf_lowrank_dp.tracing.secret_stream import SecretStream
from tf_lowrank_dp.workers import ALONE, Workers


@dataclasses.dataclass(frozen=True)
class PrivateGradients:
    """The private gradient of a logical batch, for any model, loss and release space.

    Attributes:
        model: the model whose trainable variables are differentiated.
        space: what is released.
        mechanism: how it is released.
        noise: the generator of the noise.
        expected_batch_size: public constant by which the noisy sum is divided, whatever was drawn.
        gradient_method: a key of `METHODS`.
        part_rows: number of examples (or units) of each part of a batch, whatever was drawn: the
            model sees no other number.  None for as many as a batch has, which tests use.
        steps: `tf.Variable` int64 that counts the releases.
        fill: gives absent rows, from the batch and its presence, what the model accepts.
        masks: gives the model's random layers their numbers, see `tracing/random_ops.py`.
        workers: the processes whose sums are one release.
    """

    model: keras.Model
    space: ReleaseSpace
    mechanism: GaussianMechanism
    noise: NoiseGenerator
    expected_batch_size: float
    gradient_method: str
    steps: tf.Variable
    part_rows: int | None = None
    fill: Callable[[Nested, tf.Tensor], Nested] = lambda batch, _: batch
    masks: SecretStream = dataclasses.field(default_factory=lambda: SecretStream(purpose="masks"))
    workers: Workers = ALONE

    def private_gradients(
        self,
        forward: Forward,
        batch: Nested,
        presence: tf.Tensor,
        on_outputs: Callable[..., None] = lambda *_: None,
        watched: Callable[[Nested], contextlib.AbstractContextManager] | None = None,
        jit_compile: bool = False,
        holds: tf.Tensor | None = None,
    ) -> list[tf.Tensor]:
        """Private gradients of the mean loss, one tensor for each trainable variable.

        The logical batch is one draw; parts of one size split it and change no result but rounding.

        Formal guarantee: a model that reads the size of its batch reads a public constant.

        Args:
            forward: takes (part of) `batch`, calls the model and returns one loss per example,
                `(b,)`, and anything else as nested tensors `(b, ...)`.
            batch: nested tensors whose first axis is the example; or `Units`, of which the model
                sees the rows, and each is clipped as one.
            presence: float32 `(b,)`, 1 for a sampled example or unit, 0 for padding.
            on_outputs: called with each part of the batch, its presence, losses and other outputs
                (metrics are updated here), outside of what XLA compiles.
            watched: takes (part of) `batch` and gives a context in which its forward and backward
                pass is traced, each time that this happens; it gives the gradient method.
            jit_compile: whether XLA compiles each part up to its clipped sums.
            holds: a condition of the release, boolean; where it does not hold, the release is that
                of an empty draw, in what a space keeps of it as well.

        Returns:
            `lift((sum_b s_b u_b + noise) / expected_batch_size)`.
        """
        subspace = self.workers.of_chief(self.space.refresh())

        def part(
            batch: Nested, presence: tf.Tensor
        ) -> tuple[list[list[tf.Tensor]], tf.Tensor, Nested]:
            rows = self.fill(*_rows(batch, presence))
            with random_numbers_from(self.masks):
                with self._watched(rows, watched) as method:
                    backward = METHODS[method](self.model, forward, rows)
                gradients = backward.gradients
                if isinstance(batch, Units):
                    gradients = [MeanOfRows(g, batch.weights) for g in gradients]
                blocks = self.space.project(gradients, subspace)
                sums = self.mechanism.clipped_sums(blocks, presence)
            return sums, backward.losses, backward.outputs

        # In a graph of its own also where nothing is compiled: TensorFlow's gradients have other
        # operations in the body of a loop than elsewhere, and what was looked at is no loop.
        compiled = tf.function(part, jit_compile=jit_compile, autograph=False)

        def observed_part(batch: Nested, presence: tf.Tensor) -> list[list[tf.Tensor]]:
            sums, losses, outputs = compiled(batch, presence)
            on_outputs(*_rows(batch, presence), losses, outputs)
            return sums

        def clipped_sums(batch: Nested, presence: tf.Tensor) -> list[list[tf.Tensor]]:
            return self._clipped_sums(observed_part, batch, presence)

        # Always traced: only in a graph can the random numbers of a model be replaced.  Whatever
        # the number of examples that were drawn, the graph is one.
        if tf.executing_eagerly():
            signature = tf.nest.map_structure(_of_any_size, [batch, presence])
            clipped_sums = tf.function(clipped_sums, input_signature=signature, autograph=False)
        sums = clipped_sums(batch, presence)
        if holds is not None:
            sums = [[tf.where(holds, total, 0.0) for total in block] for block in sums]
        with tf.control_dependencies([self.steps.assign_add(1)]):
            needed = self.space.needed(subspace)
            released = self.mechanism.release(sums, self.noise, self.workers, needed)
        means = tf.nest.map_structure(lambda t: t / self.expected_batch_size, released)
        return self.space.lift(means, subspace)

    def _watched(
        self, rows: Nested, watched: Callable | None
    ) -> contextlib.AbstractContextManager[str]:
        return contextlib.nullcontext(self.gradient_method) if watched is None else watched(rows)

    def _clipped_sums(
        self, part: Callable, batch: Nested, presence: tf.Tensor
    ) -> list[list[tf.Tensor]]:
        """The sum over parts of one size, whatever is drawn."""
        if self.part_rows is None:
            if not presence.shape[0]:
                batch, presence = tf.nest.map_structure(_with_a_row, (batch, presence))
            return part(batch, presence)
        size, rows = self.part_rows, presence.shape[0]
        if rows is not None and rows <= size:
            filled = tf.nest.map_structure(lambda t: _split(t, 1, size)[0], (batch, presence))
            return part(*filled)
        count = -(-_rows_to_the_last_present(presence) // size)
        parts = tf.nest.map_structure(lambda t: _split(t, count, size), (batch, presence))

        def add_part(
            index: int, totals: list[list[tf.Tensor]]
        ) -> tuple[tf.Tensor, list[list[tf.Tensor]]]:
            sums = part(*tf.nest.map_structure(lambda t: tf.gather(t, index), parts))
            return index + 1, tf.nest.map_structure(tf.add, totals, sums)

        zeros = [[tf.zeros(shape) for shape in block] for block in self.space.shapes]
        _, totals = tf.while_loop(
            lambda index, _: index < count, add_part, (0, zeros), parallel_iterations=1
        )
        return totals


def _rows(batch: Nested, presence: tf.Tensor) -> tuple[Nested, tf.Tensor]:
    """What the model sees, and which rows of it are examples."""
    return (batch.flat, batch.of_rows(presence)) if isinstance(batch, Units) else (batch, presence)


def _of_any_size(tensor: tf.Tensor) -> tf.TensorSpec:
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


def _with_a_row(tensor: tf.Tensor) -> tf.Tensor:
    """The tensor, or one absent row if it has none: convolutions fail on empty batches."""
    filled = _filled(tensor, tf.maximum(tf.shape(tensor)[0], 1))
    return tf.ensure_shape(filled, [None, *tensor.shape[1:]])


def _rows_to_the_last_present(presence: tf.Tensor) -> tf.Tensor:
    """How many rows have to be computed, at least one: behind them is padding of the sampler's."""
    places = tf.range(1, tf.shape(presence)[0] + 1)
    return tf.reduce_max(tf.concat([[1], tf.where(presence > 0.0, places, 0)], 0))


def _split(tensor: tf.Tensor, count: int | tf.Tensor, size: int) -> tf.Tensor:
    """`(b, ...)` as `(count, size, ...)`, cut or filled up with absent rows."""
    inner = tensor.shape[1:]
    lengths = inner if inner.is_fully_defined() else tf.unstack(tf.shape(tensor)[1:])
    filled = _filled(tensor[: count * size], count * size)
    parts = tf.reshape(filled, [count, size, *lengths])
    return tf.ensure_shape(parts, [None, size, *inner])


def _filled(tensor: tf.Tensor, size: int | tf.Tensor) -> tf.Tensor:
    """The tensor with absent rows added up to `size` rows."""
    missing = size - tf.shape(tensor)[0]
    if tensor.dtype == tf.string:  # which TensorFlow does not pad
        shape = tf.concat([[missing], tf.shape(tensor)[1:]], 0)
        return tf.concat([tensor, tf.zeros(shape, tensor.dtype)], 0)
    return tf.pad(tensor, [[0, missing], *[[0, 0]] * (tensor.shape.rank - 1)])
