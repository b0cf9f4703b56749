"""By which gradient method a model is differentiated: all at once where that is proven."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._keras.layers import layers_of
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.gradient_methods.backward import Forward
from tf_lowrank_dp.gradient_methods.methods import METHODS, RECORDED
from tf_lowrank_dp.gradient_methods.trial import forget_plan
from tf_lowrank_dp.layers.not_recorded import NotRecordedError
from tf_lowrank_dp.tracing.example_axis import UNROLLED, Label, Rows, unmistakable_size
from tf_lowrank_dp.tracing.random_draws import Source
from tf_lowrank_dp.tracing.random_ops import ConstantSource, random_numbers_from
from tf_lowrank_dp.tracing.secret_stream import SecretStream
from tf_lowrank_dp.tracing.traced_part import TracedPart, traced_part
from tf_lowrank_dp.training.gradient_probe import computes_in_float32
from tf_lowrank_dp.training.probe import probe
from tf_lowrank_dp.training.random_batch import RANGES, random_batch
from tf_lowrank_dp.training.row_proof import RowProof, prove_rows

# What TensorFlow and Keras raise where a method cannot be traced; vectorising loops, the third.
_UNTRACEABLE = (ValueError, TypeError, AttributeError, NotImplementedError, tf.errors.OpError)


_FEW = 3  # examples, of which gradients side by side are compared with those of each alone
_SAME = {True: 0.01, False: 0.1}  # of their norm: all layers compute in float32, or not


class Chosen(NamedTuple):
    """How a model is differentiated.

    Attributes:
        method: a key of `METHODS`.
        units: number of units in each part of a batch.
        part: what was traced.
    """

    method: str
    units: int
    part: TracedPart


def choose(
    model: keras.Model,
    forward: Forward,
    element_spec: Nested,
    method: str,
    least: int,
    most: int | None = None,
    rows_per_unit: int = 1,
    compiled: bool = False,
) -> Chosen:
    """Looks at a model, and decides whether several examples are differentiated at once.

    Args:
        model: a built model.
        forward: takes a batch and returns losses `(b,)` and more.
        element_spec: nested `tf.TensorSpec` of a batch of any size.
        method, least, most, rows_per_unit, compiled: as of `JudgedGraphs`.

    Raises:
        UnsupportedModelError: see `probe`; or the graph joins examples, or is not proven with a
            gradient method that needs it.
    """
    forget_plan(model)
    tried: list[Chosen] = []

    def step(method: str, units: int) -> Step:
        return Step(model, forward, element_spec, method, units * rows_per_unit, compiled)

    def prove(graph: tf.Graph) -> RowProof:
        if any(isinstance(layer, UNROLLED) for layer in layers_of(model)):
            # Keras would trace them once for each example.
            return RowProof(False, "a layer that is traced once for each example")
        units = unmistakable_size(least, graph, most)
        recorded = step(method, units)
        try:
            traced, part, results = recorded.traced()
        except NotRecordedError as error:
            if method != "auto":
                raise
            return RowProof(False, error.by)
        except UnsupportedModelError:
            raise
        except _UNTRACEABLE as error:
            return RowProof(False, f"what cannot be traced with layers recorded ({error})")
        tried.append(Chosen(method, units, part))
        if units == 1:
            return RowProof(True)  # There is nobody to be joined with.
        leaves = len(tf.nest.flatten(element_spec))
        return prove_rows(model, traced, leaves, results, recorded.rows)

    if method not in RECORDED:
        probe(model, forward, element_spec, recorded=False)
        chosen = Chosen(method, least, step(method, least).part())
        if method == "vectorized":
            _refuse_if_not_vectorized(model, step(method, _FEW), step("loop", _FEW))
        return chosen
    try:
        proof = probe(model, forward, element_spec, prove=prove)
    except NotRecordedError as error:  # by other gradients, where all else is proven
        if method != "auto" or not tried:
            raise
        proof = RowProof(False, error.by)
    if proof.proven:
        return tried[-1]
    if method != "auto":
        raise UnsupportedModelError(
            "Expected operations that are known to treat each example by itself, where several "
            f"are differentiated at once (gradient_method='{method}'). Received: '{model.name}', "
            f"with {proof.by}. Use gradient_method='auto', which takes such a model one example "
            "at a time."
        )
    warnings.warn(
        f"'{model.name}' is differentiated one example at a time, which is slower and as private, "
        f"as {proof.by} is not known to keep examples apart. What to do about it: docs/faq.md.",
        stacklevel=2,
    )
    vectorized = step("vectorized", least)
    try:
        if _agree(step("vectorized", _FEW), step("loop", _FEW)):
            return Chosen("vectorized", least, vectorized.part())
    except (UnsupportedModelError, *_UNTRACEABLE):
        pass
    return Chosen("loop", least, step("loop", least).part())


class Step(NamedTuple):
    """The forward and backward pass of a batch by one method."""

    model: keras.Model
    forward: Forward
    element_spec: Nested
    method: str
    rows: int
    compiled: bool

    def traced(self) -> tuple[tf.Graph, TracedPart, list[tuple[tf.Tensor, Label]]]:
        """The graph, what it computes on a batch, and what the examples are followed to."""
        masks = SecretStream()
        kept: list = []

        def step(batch: Nested) -> None:
            with random_numbers_from(masks):
                with part_of_this_graph(batch) as parts:
                    backward = METHODS[self.method](self.model, self.forward, batch)
            kept[:] = parts[0], [(backward.losses, Rows(0)), *backward.followed]

        traced = tf.function(step, autograph=False, jit_compile=self.compiled)
        specs = tf.nest.map_structure(
            lambda spec: tf.TensorSpec([self.rows, *spec.shape[1:]], spec.dtype), self.element_spec
        )
        graph = traced.get_concrete_function(specs).graph
        return graph, *kept

    def part(self) -> TracedPart:
        """What the graph computes.

        Raises:
            UnsupportedModelError: it cannot be traced.
        """
        try:
            return self.traced()[1]
        except UnsupportedModelError:
            raise
        except _UNTRACEABLE as error:
            raise UnsupportedModelError(
                "Expected a model whose per-example gradients can be taken with "
                f"gradient_method='{self.method}'. Received: '{self.model.name}', which cannot "
                f"be traced with it ({error}). Remove what it cannot take, such as assignments and "
                "operations of your own, or use another gradient_method."
            ) from error

    def run(self, numbers: Source) -> list[list[tf.Tensor]]:
        """The gradients of random rows, of each range, with random numbers from a source."""

        @tf.function(autograph=False)
        def gradients(batch: Nested) -> list[tf.Tensor]:
            with random_numbers_from(numbers):
                found = METHODS[self.method](self.model, self.forward, batch).gradients
            return [gradient.materialize() for gradient in found]

        def batch(range_: str) -> Nested:
            generator = np.random.default_rng(0)
            return random_batch(self.model, self.element_spec, generator, self.rows, (1, 4), range_)

        return [gradients(batch(range_)) for range_ in RANGES]


def _agree(vectorized: Step, loop: Step) -> bool:
    """Whether single examples have the gradients that they have side by side.

    TensorFlow's rules for vectorising have been wrong (`elements_stay_apart`), so they are looked
    at on random rows.  What cannot be compared agrees: what draws random numbers has others.

    Raises:
        ValueError, TypeError, tf.errors.OpError: what TensorFlow raises where they cannot be
            compiled side by side, which not all that can be traced can.
    """
    side_by_side, numbers = vectorized.run(SecretStream()), ConstantSource()
    try:
        alone = loop.run(numbers)
    except (UnsupportedModelError, *_UNTRACEABLE):
        return True
    if numbers.was_used:
        return True
    same = _SAME[computes_in_float32(vectorized.model)]
    for found, expected in zip(side_by_side, alone, strict=True):
        norm = float(tf.linalg.global_norm(expected))
        differences = [f - e for f, e in zip(found, expected, strict=True)]
        error = float(tf.linalg.global_norm(differences))
        if np.isfinite(norm) and not error <= same * norm:
            return False
    return True


def _refuse_if_not_vectorized(model: keras.Model, vectorized: Step, loop: Step) -> None:
    """Tries on random rows whether TensorFlow vectorises what was asked to be.

    Raises:
        UnsupportedModelError: it cannot, or does so wrongly.
    """
    try:
        what = "" if _agree(vectorized, loop) else "gradients are others than those of each alone"
    except (UnsupportedModelError, *_UNTRACEABLE) as error:
        try:
            loop.run(ConstantSource())
        except (UnsupportedModelError, *_UNTRACEABLE):
            return  # Random rows are outside of its domain.
        what = f"examples cannot be computed side by side ({str(error).strip().splitlines()[0]})"
    if what:
        raise UnsupportedModelError(
            "Expected operations that TensorFlow vectorises rightly with gradient_method="
            f"'vectorized'. Received: '{model.name}', whose {what}. Use "
            "gradient_method='auto', or 'loop', which takes one example after the other."
        )


@contextlib.contextmanager
def part_of_this_graph(batch: Nested) -> Iterator[list[TracedPart]]:
    """Gives a list that holds, after the context, what was traced in it on a batch."""
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    parts: list[TracedPart] = []
    yield parts
    parts.append(traced_part(graph, before, tf.nest.flatten(batch)))
