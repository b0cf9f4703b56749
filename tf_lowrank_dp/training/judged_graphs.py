"""What is trained is what was looked at: each trace of a step is compared with those judged.

Python code runs again whenever a step is traced again: in eager mode at each step, for data of
another shape, after `make_train_function(force=True)`.  Attributes that have changed since the
probe make another graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import keras
import tensorflow as tf

from tf_lowrank_dp._keras.layers import seeds_in_reach
from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.gradient_methods.backward import Forward
from tf_lowrank_dp.spending.digest import digests
from tf_lowrank_dp.tracing.traced_part import TracedPart
from tf_lowrank_dp.tracing.written import written_variables
from tf_lowrank_dp.training.chosen_method import Step, choose, part_of_this_graph
from tf_lowrank_dp.training.metrics import variables_of_metrics

Result = TypeVar("Result")


class JudgedGraphs:
    """The forward and backward passes of a model that were proven, or take one example at a time.

    Formal guarantee: what is differentiated with several examples at once is proven to keep them
    apart, in the graph that is trained, with their random numbers; all else takes each example by
    itself ("auto"), or is refused (other methods that record layers).

    Args:
        model: a built model.
        forward: takes a batch and returns losses `(b,)` and more.
        gradient_method: a key of `METHODS`, as it was asked for.
        least: the number of units wanted in each part of a batch; more are taken where a length of
            the model could be mistaken for it.
        most: the largest number of units of a part; None for any.
        rows_per_unit: number of rows of each unit.
        compiled: whether XLA compiles the parts.

    Attributes:
        units: of each part of a batch, once it is judged.
        method: a key of `METHODS`, by which the model is differentiated.
    """

    def __init__(
        self,
        model: keras.Model,
        forward: Forward,
        gradient_method: str,
        least: int,
        most: int | None = None,
        rows_per_unit: int = 1,
        compiled: bool = False,
    ):
        self._model, self._forward = model, forward
        self._asked = gradient_method, least, most, rows_per_unit, compiled
        self.method, self.units = gradient_method, least
        self._digests: set[bytes] = set()
        self._read: dict[int, tf.Tensor] = {}
        self._written: dict[int, tf.Tensor] = {}
        self._counts: Callable[[Iterable[tf.Tensor]], None] | None = None
        self._circumstances: tuple = ()

    def judge(self, element_spec: Nested) -> None:
        """Looks at the model as its Python code is now.

        Args:
            element_spec: nested `tf.TensorSpec` of a batch.

        Raises:
            UnsupportedModelError: see `choose`; or the graph writes.
        """
        refuse_composites(element_spec)
        chosen = choose(self._model, self._forward, element_spec, *self._asked)
        self.method, self.units = chosen.method, chosen.units
        self._accept(chosen.part)
        self._circumstances = self._circumstances_now(element_spec)

    def holds(self, element_spec: Nested, *asked: object) -> bool:
        """Whether `judge` would see what it saw, so that another `fit` need not look again.

        Python code may have changed: it makes another graph only when a step is traced again, and
        `watched` sees that.

        Args:
            element_spec: nested `tf.TensorSpec` of a batch.
            *asked: gradient method, units, rows of each and compilation, as when it was made.
        """
        now = self._circumstances_now(element_spec)
        return asked == self._asked and self._circumstances == now

    def _circumstances_now(self, element_spec: Nested) -> tuple:
        """All but Python code on which the result of a look depends."""
        fixed = self._model.non_trainable_variables
        names = [(v.path, v.dtype, id(v)) for v in (*self._model.trainable_variables, *fixed)]
        return str(element_spec), names, digests(fixed)

    def judge_apart(self, element_spec: Nested) -> None:
        """As `judge`, while a graph is traced or a tape is watching."""
        _apart(self.judge, element_spec)

    def look_again(self, forward: Forward, element_spec: Nested) -> None:
        """Traces a custom loop's function again, which has to compute what it did.

        Args:
            forward: made of the same as the one that was judged, as far as that is seen.
            element_spec: nested `tf.TensorSpec` of a batch.

        Raises:
            UnsupportedModelError: it has other operations, or other constants.
        """
        _, _, _, rows_per_unit, compiled = self._asked
        rows = self.units * rows_per_unit
        step = Step(self._model, forward, element_spec, self.method, rows, compiled)
        if _apart(step.part).digest not in self._digests:
            raise UnsupportedModelError(
                "Expected a forward function that computes the same at each step. Received: one "
                f"for '{self._model.name}' that gives other operations or constants than at the "
                "first: it uses something that has changed, by a property, a class or an object. "
                "If that was computed from the batch, one example acts on the gradients of all, "
                "and no clip bounds that: compute it of the function's argument. A public number "
                "that changes is a tf.Variable that is assigned; after any other change, make the "
                "PrivateTrainer again."
            )

    @contextlib.contextmanager
    def watched(self, batch: Nested) -> Iterator[str]:
        """Context in which a step is traced that shall be trained: it is judged if it is new.

        It gives the gradient method.

        Raises:
            UnsupportedModelError: see `judge`; or the code gives another graph each time.
        """
        method, units = self.method, self.units
        with part_of_this_graph(batch) as parts:
            yield method
        if parts[0].digest not in self._digests:
            self.judge_apart(
                tf.nest.map_structure(lambda leaf: tf.TensorSpec(leaf.shape, leaf.dtype), batch)
            )
        if parts[0].digest not in self._digests or (method, units) != (self.method, self.units):
            raise UnsupportedModelError(
                "Expected Python code that gives the same operations whenever it is traced. "
                f"Received: '{self._model.name}', where they differ from those that were looked "
                "at: it changed since, or draws random numbers in Python. Draw them with "
                "keras.random, and call fit (or make the trainer) again after a change."
            )
        self.count(parts[0])  # other variables may be in the same places

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
        self.count(part)

    def count(self, part: TracedPart) -> None:
        """Counts what a part of a step reads.

        Raises:
            UnsupportedModelError: it reads what metrics write.
        """
        self.add_reads(part.reads)
        self._refuse_what_comes_back()

    def add_reads(self, handles: Iterable[tf.Tensor]) -> None:
        """Counts what is spent on these variables, now or later, for the run that reads them.

        A loss, a `Lambda` or a custom loop may ask another model, such as a private teacher.

        Args:
            handles: of variables that steps read.

        Raises:
            ValueError: no epsilon could be stated with that.
        """
        found = {id(each): each for each in handles}
        if self._counts is not None:
            self._counts(found.values())
        self._read |= found

    def count_for(self, counts: Callable[[Iterable[tf.Tensor]], None]) -> None:
        """States who counts what they read for the run that they belong to, which has begun."""
        self._counts = counts
        self.add_reads(self.reads)

    @property
    def reads(self) -> list[tf.Tensor]:
        """Handles of the variables that steps were seen to read so far."""
        return [*self._read.values()]

    @property
    def number_read(self) -> int:
        """How many variables steps were seen to read so far."""
        return len(self._read)

    @contextlib.contextmanager
    def watched_metrics(self) -> Iterator[None]:
        """Context in which metrics are updated and read; they see examples as they are.

        Guarantee: what they write to is no weight of the model or its optimizer, and nothing that
        a forward pass of the run reads, but for seed generators, which are put back.

        Raises:
            UnsupportedModelError: it is.
        """
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        yield
        seeds = {id(state.value.handle) for state in seeds_in_reach(self._model)}
        written = {id(handle): handle for handle in written_variables(graph, before)}
        self._written |= {key: written[key] for key in written.keys() - seeds}
        self._refuse_what_comes_back()

    def _refuse_what_comes_back(self) -> None:
        """Refuses variables that metrics write to, or are theirs, and training reads or keeps."""
        model, optimizer = self._model, getattr(self._model, "optimizer", None)
        weights = [*model.weights, *(optimizer.variables if optimizer else ())]
        kept = {id(v.value.handle) for v in weights}
        found = self._written.keys() & {*kept, *self._read}
        # Python resets them between epochs, or updates them in a test_step, which nobody traces.
        theirs = variables_of_metrics(model)
        found |= {id(v.value.handle) for v in theirs}.difference(kept) & self._read.keys()
        if found:
            paths = {id(v.value.handle): v.path for v in (*model.variables, *weights, *theirs)}
            names = sorted(paths.get(key, "a variable of another object") for key in found)
            raise UnsupportedModelError(
                "Expected metrics that write to variables of their own only. Received: "
                f"'{self._model.name}', whose metrics, compute_metrics or get_metrics_result hold "
                f"or write to {names}, which the model reads or keeps as weights: what they see is "
                "neither clipped nor noised. Keep it in a keras.metrics.Metric that no call and no "
                "loss reads."
            )


def _apart(function: Callable[..., Result], *args: Nested) -> Result:
    """What a function returns in a thread that neither traces a graph nor watches with a tape."""
    with ThreadPoolExecutor(1) as eager:
        return eager.submit(function, *args).result()


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
