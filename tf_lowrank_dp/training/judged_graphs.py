"""What is trained is what was looked at: each trace of a step is compared with those judged.

Python code runs again whenever a step is traced again: in eager mode at each step, for data of
another shape, after `make_train_function(force=True)`.  Attributes that have changed since the
probe make another graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.gradient_methods.backward import Forward
from tf_lowrank_dp.gradient_methods.methods import METHODS, RECORDED
from tf_lowrank_dp.gradient_methods.trial import forget_plan
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.spending.digest import digests
from tf_lowrank_dp.tracing.random_ops import random_numbers_from
from tf_lowrank_dp.tracing.secret_stream import SecretStream
from tf_lowrank_dp.tracing.traced_part import TracedPart, traced_part
from tf_lowrank_dp.tracing.written import written_variables
from tf_lowrank_dp.training.probe import probe


class SharedDrawError(UnsupportedModelError):
    """Rows share random numbers in a step that is taken in parts."""


class JudgedGraphs:
    """The forward and backward passes of a model that were proven or probed.

    Args:
        model: a built model.
        forward: takes a batch and returns losses `(b,)` and more.
        gradient_method: a key of `METHODS`.
        compiled_rows: where XLA compiles, the number of rows of each part of a batch.
        in_parts: whether a step may be taken in several parts, by XLA, microbatches or workers.

    Attributes:
        compiled_rows: as given.
        update_is_seen: whether an update of the weights was traced in `watched_update`.
    """

    def __init__(
        self,
        model: keras.Model,
        forward: Forward,
        gradient_method: str,
        compiled_rows: int | None = None,
        in_parts: bool = False,
    ):
        self._model, self._forward = model, forward
        self._method, self.compiled_rows = gradient_method, compiled_rows
        self._in_parts = in_parts
        self._digests: set[bytes] = set()
        self._read: dict[int, tf.Tensor] = {}
        self._read_of_others: dict[int, tf.Tensor] = {}
        self._written: dict[int, tf.Tensor] = {}
        self._circumstances: tuple = ()
        self.update_is_seen = False

    def judge(self, element_spec: Nested) -> None:
        """Looks at the model as its Python code is now.

        Args:
            element_spec: nested `tf.TensorSpec` of a batch.

        Raises:
            UnsupportedModelError: see `probe`; or the graph writes.
            SharedDrawError: rows share random numbers, which parts of a step would not.
        """
        refuse_composites(element_spec)
        forget_plan(self._model)
        recorded = self._method in RECORDED
        proof = probe(self._model, self._forward, element_spec, recorded=recorded)
        if proof.shared_draw and self._in_parts:
            raise SharedDrawError(
                "Expected random numbers of each example's own where a step is taken in parts "
                "(microbatch_size, several workers, XLA). Received: "
                f"'{self._model.name}', where {proof.shared_draw} draws some that rows share: each "
                "part would have its own, and one example more moves others to other parts. Draw "
                "them for each example, noise_shape=(None, 1) in Dropout for example, or take "
                "steps whole: microbatch_size=None, one worker, jit_compile=False."
            )

        masks = SecretStream()

        def step(batch: Nested) -> None:
            with random_numbers_from(masks):
                with _part_of_this_graph(batch) as parts:
                    METHODS[self._method](self._model, self._forward, batch)
            self._accept(parts[0])

        rows = self.compiled_rows
        traced = tf.function(step, autograph=False, jit_compile=rows is not None)
        specs = tf.nest.map_structure(
            lambda spec: tf.TensorSpec([spec.shape[0] or rows, *spec.shape[1:]], spec.dtype),
            element_spec,
        )
        try:
            traced.get_concrete_function(specs)
        except UnsupportedModelError:
            raise
        except ValueError as error:
            raise UnsupportedModelError(
                "Expected a model whose per-example gradients can be taken with "
                f"gradient_method='{self._method}'. Received: '{self._model.name}', which cannot "
                f"be traced with it ({error}). Remove what it cannot take, such as assignments and "
                "operations of your own, or use another gradient_method."
            ) from error
        self._circumstances = self._circumstances_now(element_spec)

    def holds(
        self,
        element_spec: Nested,
        gradient_method: str,
        compiled_rows: int | None,
        in_parts: bool = False,
    ) -> bool:
        """Whether `judge` would see what it saw, so that another `fit` need not look again.

        Python code may have changed: it makes another graph only when a step is traced again, and
        `watched` sees that.

        Args:
            element_spec: nested `tf.TensorSpec` of a batch.
            gradient_method, compiled_rows, in_parts: as when it was made.
        """
        now = gradient_method, compiled_rows, in_parts
        return now == (self._method, self.compiled_rows, self._in_parts) and (
            self._circumstances == self._circumstances_now(element_spec)
        )

    def _circumstances_now(self, element_spec: Nested) -> tuple:
        """All but Python code on which the result of a look depends."""
        fixed = self._model.non_trainable_variables
        names = [(v.path, v.dtype, id(v)) for v in (*self._model.trainable_variables, *fixed)]
        return str(element_spec), names, digests(fixed)

    def judge_apart(self, element_spec: Nested) -> None:
        """As `judge`, while a graph is traced or a tape is watching."""
        with ThreadPoolExecutor(1) as eager:
            eager.submit(self.judge, element_spec).result()

    @contextlib.contextmanager
    def watched(self, batch: Nested) -> Iterator[None]:
        """Context in which a step is traced that shall be trained: it is judged if it is new.

        Raises:
            UnsupportedModelError: see `judge`.
        """
        with _part_of_this_graph(batch) as parts:
            yield
        if parts[0].digest in self._digests:
            self._count(parts[0])  # other variables may be in the same places
            return
        self.judge_apart(
            tf.nest.map_structure(lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), batch)
        )
        self._accept(parts[0])

    def _accept(self, part: TracedPart) -> None:
        if part.writes:
            raise UnsupportedModelError(
                "Expected a forward and backward pass that computes losses and gradients and "
                f"nothing else. Received: '{self._model.name}', where {part.writes[0]} keeps "
                "something of the examples in a variable or table, or hands them to Python, which "
                "can keep them and would not be clipped or noised. Remove it: compute with "
                "TensorFlow or keras.ops, and keep statistics outside of the model."
            )
        self._digests.add(part.digest)
        self._count(part)

    def _count(self, part: TracedPart) -> None:
        self._read |= {id(handle): handle for handle in part.reads}
        self.add_reads(part.reads)
        self._refuse_what_comes_back()

    def add_reads(self, handles: Iterable[tf.Tensor]) -> None:
        """Counts what was spent on these variables, now and whenever steps are counted.

        Args:
            handles: of variables that steps of this run read; the model's own change nothing.
        """
        own = {id(variable.value.handle) for variable in self._model.variables}
        self._read_of_others |= {id(each): each for each in handles if id(each) not in own}
        self.count_what_is_read()

    @contextlib.contextmanager
    def watched_update(self) -> Iterator[None]:
        """Context in which the weights are updated: counts what that reads, seen in graphs only."""
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        yield
        if not tf.executing_eagerly():
            self.update_is_seen = True
            self._count(traced_part(graph, before))

    def count_what_is_read(self) -> None:
        """Adds to the model what was spent on the variables of others that its graphs read.

        A loss, a `Lambda` or a custom loop may ask another model, such as a private teacher.
        """
        if self._read_of_others:
            updated = [self._model, *self._model.trainable_variables]
            SPENDING.read(self._read_of_others.values(), updated)

    @contextlib.contextmanager
    def watched_metrics(self) -> Iterator[None]:
        """Context in which metrics are updated, which see examples without clip or noise.

        Guarantee: what they write to is no weight of the model or its optimizer, and nothing that
        a forward pass of the run reads.

        Raises:
            UnsupportedModelError: it is.
        """
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        yield
        self._written |= {id(handle): handle for handle in written_variables(graph, before)}
        self._refuse_what_comes_back()

    def _refuse_what_comes_back(self) -> None:
        """Refuses variables that metrics write to and training reads or keeps."""
        if not self._written:
            return
        model, optimizer = self._model, self._model.optimizer
        weights = [*model.weights, *(optimizer.variables if optimizer else ())]
        found = self._written.keys() & {*(id(v.value.handle) for v in weights), *self._read}
        if found:
            paths = {id(v.value.handle): v.path for v in (*model.variables, *weights)}
            names = sorted(paths.get(key, "a variable of another object") for key in found)
            raise UnsupportedModelError(
                "Expected metrics that write to variables of their own only. Received: "
                f"'{self._model.name}', whose metrics or compute_metrics write to {names}, which "
                "the model reads or keeps as weights: what they see is neither clipped nor noised. "
                "Keep it in a keras.metrics.Metric that no call and no loss reads."
            )


def refuse_composites(batch: Nested) -> None:
    """Refuses ragged and sparse tensors, whose rows are not the examples.

    Args:
        batch: nested tensors or their specs.
    """
    ragged = (tf.RaggedTensor, tf.SparseTensor, tf.RaggedTensorSpec, tf.SparseTensorSpec)
    received = {type(leaf).__name__ for leaf in tf.nest.flatten(batch) if isinstance(leaf, ragged)}
    if received:
        raise UnsupportedModelError(
            "Expected dense tensors, whose first axis is the example. Received: "
            f"{sorted(received)} in a batch. Pad them to one length before they are batched "
            "(tensor.to_tensor(shape=[None, length]), tf.sparse.to_dense)."
        )


@contextlib.contextmanager
def _part_of_this_graph(batch: Nested) -> Iterator[list[TracedPart]]:
    """Gives a list that holds, after the context, what was traced in it on a batch."""
    graph = tf.compat.v1.get_default_graph()
    before = len(graph.get_operations())
    parts: list[TracedPart] = []
    yield parts
    parts.append(traced_part(graph, before, tf.nest.flatten(batch)))
