"""From what users give to `fit` to a data set of logical batches and what the accountant needs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.sampling import (
    PRESENCE,
    ROW_WEIGHT,
    PoissonSampler,
    Records,
    UserSampler,
    count_rows,
    declared_dataset,
    to_rows,
)
from tf_lowrank_dp.sampling.parts import part, shard
from tf_lowrank_dp.sampling.upstream import handles_read
from tf_lowrank_dp.training.distribution import refuse_distribution
from tf_lowrank_dp.training.preprocessed import preprocessed
from tf_lowrank_dp.training.random_batch import completed
from tf_lowrank_dp.training.state import state_of
from tf_lowrank_dp.workers import Workers
from tf_lowrank_dp.workers.agreement import refuse_differences


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Logical batches and how they are drawn.

    Attributes:
        dataset: yields logical batches.
        sampling: how they are drawn.
        steps_per_epoch: integer.
        ends: whether an epoch is one pass over `dataset`, which ends by itself.
        seeded: whether they follow a given seed.
        rows_digest: of all rows, given a key, see `PoissonSampler.rows_digest`; None of others'.
        reads: handles of the variables that they are made with.
    """

    dataset: tf.data.Dataset
    sampling: Sampling
    steps_per_epoch: int
    ends: bool
    seeded: bool
    rows_digest: Callable[..., str] | None = None
    reads: tuple[tf.Tensor, ...] = ()

    @property
    def rows_per_unit(self) -> int:
        """Number of rows of each unit that is clipped as one."""
        weights = self.dataset.element_spec.get(ROW_WEIGHT)
        return 1 if weights is None else weights.shape[1]

    @property
    def element_spec(self) -> dict:
        """Spec of the rows of a batch without their presence: what the model sees."""
        spec = dict(self.dataset.element_spec)
        del spec[PRESENCE]
        if spec.pop(ROW_WEIGHT, None) is None:
            return spec
        return tf.nest.map_structure(lambda s: tf.TensorSpec([None, *s.shape[2:]], s.dtype), spec)

    def completed(self, model: keras.Model) -> TrainingData:
        """The same data, whose specification has the sizes that only the model knows."""
        spec = completed(model, self.element_spec)
        if spec == self.element_spec:
            return self
        of_units = ROW_WEIGHT in self.dataset.element_spec

        def with_shape(tensor: tf.Tensor, row: tf.TensorSpec) -> tf.Tensor:
            return tf.ensure_shape(tensor, [*tensor.shape[: 1 + of_units], *row.shape[1:]])

        @tf.autograph.experimental.do_not_convert  # conversion takes half a second
        def with_shapes(batch: dict) -> dict:
            fixed = tf.nest.map_structure(with_shape, {key: batch[key] for key in spec}, spec)
            return {**batch, **fixed}

        return dataclasses.replace(self, dataset=self.dataset.map(with_shapes))

    def repeated(self, multiplicity: int) -> TrainingData:
        """The same data with each row several times, in units of these copies.

        Args:
            multiplicity: how often, at least 1; 1 changes nothing.
        """
        if multiplicity == 1:
            return self

        @tf.autograph.experimental.do_not_convert
        def copies(batch: dict) -> dict:
            rest = dict(batch)
            presence = rest.pop(PRESENCE)
            if ROW_WEIGHT not in rest:
                rest[ROW_WEIGHT] = tf.ones_like(presence)
                rest = tf.nest.map_structure(lambda leaf: leaf[:, None], rest)
            rest = tf.nest.map_structure(lambda leaf: tf.repeat(leaf, multiplicity, axis=1), rest)
            return {**rest, ROW_WEIGHT: rest[ROW_WEIGHT] / multiplicity, PRESENCE: presence}

        return dataclasses.replace(self, dataset=self.dataset.map(copies))


def training_data(
    model: keras.Model,
    x: Nested,
    y: Nested,
    *,
    sample_weight: Nested,
    class_weight: dict[int, float] | None,
    batch_size: int | None,
    steps_per_epoch: int | None,
    sampling: str | None,
    sampling_rate: float | None,
    num_examples: int | None,
    seed: int | None,
    unit_ids: Nested = None,
    rows_per_unit: int | None = None,
    sharded: bool = False,
) -> TrainingData:
    """Samples arrays ourselves; takes the user's word for data sets that are already batched."""
    refuse_distribution(data=x)
    workers = state_of(model).workers
    sharded = sharded and not workers.alone
    batch_size_of_all = 32 if batch_size is None else batch_size
    if sharded and (isinstance(x, PoissonSampler) or is_batched(x)):
        raise ValueError(
            "Expected this worker's rows with sharded=True, of which fit draws. Received: "
            f"{type(x).__name__}. Pass arrays or Records, and the batch_size of all workers."
        )
    if isinstance(x, PoissonSampler):
        _refuse_beside_batches("a PoissonSampler", y, sample_weight, class_weight)
        _refuse_statement(sampling, sampling_rate, num_examples)
        if batch_size not in (None, x.batch_size):
            raise ValueError(
                f"Expected batch_size to be that of the PoissonSampler, {x.batch_size}. Received: "
                f"batch_size={batch_size}. Leave it out."
            )
        sampler = x
    elif is_batched(x):
        if not workers.alone:
            raise UnsupportedModelError(
                f"Expected rows that {workers.count} workers can share. Received: data that come "
                "in batches, of which each worker would train on all. Pass the same arrays, "
                "PoissonSampler or Records on every worker: each draws from rows of its own."
            )
        _refuse_beside_batches("data that come in batches", y, sample_weight)
        dataset, declared = declared_dataset(
            x,
            sampling=sampling,
            batch_size=batch_size,
            num_examples=num_examples,
            sampling_rate=sampling_rate,
            steps_per_epoch=steps_per_epoch,
            class_weight=class_weight,
        )
        length = int(dataset.cardinality())
        if length < 0 and steps_per_epoch is None:
            raise ValueError(
                "Expected steps_per_epoch for data of unknown or infinite length. Received: None. "
                "Pass the number of batches that make an epoch: noise is planned for them."
            )
        steps = steps_per_epoch or length
        return TrainingData(
            preprocessed(model, dataset),
            declared,
            steps,
            ends=steps == length,
            seeded=False,
            reads=handles_read(x),
        )
    else:
        _refuse_statement(sampling, sampling_rate, num_examples)
        units = {} if unit_ids is None else {"unit_ids": unit_ids, "rows_per_unit": rows_per_unit}
        sampler = (UserSampler if units else PoissonSampler)(
            x,
            y,
            batch_size=1 if sharded else batch_size_of_all,
            sample_weight=sample_weight,
            class_weight=class_weight,
            seed=seed,
            **units,
        )
    own = sampler
    if not workers.alone:
        own = _of_worker(sampler, workers, batch_size_of_all if sharded else None)
        sampler = own if sharded else sampler
    steps = steps_per_epoch or sampler.steps or sampler.steps_per_epoch
    if steps > (sampler.steps or steps):
        raise ValueError(
            f"Expected steps_per_epoch to be at most the steps of the PoissonSampler, "
            f"{sampler.steps}. Received: steps_per_epoch={steps}. Leave it out."
        )
    dataset = preprocessed(model, own.without_draws().take(steps))
    return TrainingData(
        dataset,
        sampler.sampling,
        steps,
        ends=True,
        seeded=sampler.seeded,
        rows_digest=sampler.rows_digest,
        reads=sampler.reads,
    )


def _of_worker(sampler: PoissonSampler, workers: Workers, batch_size: int | None) -> PoissonSampler:
    """What one of several draws: part of the rows that all have, or its own of a larger batch."""
    sharded = batch_size is not None
    found = workers.gather_numbers(int(sharded), sampler.num_examples)
    refuse_differences([{"sharded": str(bool(kind))} for kind, _ in found])
    if batch_size is None:
        return part(sampler, workers.index, workers.count)
    return shard(sampler, workers.index, [size for _, size in found], batch_size)


def split_rows(x: Nested, y: Nested, sample_weight: Nested, fraction: float) -> tuple[tuple, tuple]:
    """The last `fraction` of the examples for validation, as Keras does."""
    if is_batched(x) or isinstance(x, Records | PoissonSampler):
        raise ValueError(
            "Expected arrays with validation_split, whose last rows validate. Received: a "
            f"{type(x).__name__}. Leave it out and pass validation_data=..., made of other records."
        )
    given = {"x": x, "y": y, "sample_weight": sample_weight}
    arrays = {name: to_rows(part, name) for name, part in given.items() if part is not None}
    count = count_rows(arrays)
    at = math.floor(count * (1.0 - fraction))
    if not 0 < at < count:
        raise ValueError(
            f"Expected examples to train on and others to validate with. Received: {count} "
            f"examples and validation_split={fraction}. Pass more data, or validation_data."
        )

    def part(slice_: slice) -> tuple:
        split = keras.tree.map_structure(lambda leaf: leaf[slice_], arrays)
        return tuple(split.get(name) for name in given)

    return part(slice(None, at)), part(slice(at, None))


def is_batched(x: Nested) -> bool:
    """Whether the data come in batches that others have drawn."""
    is_generator = hasattr(x, "__next__") or callable(x)
    return isinstance(x, (tf.data.Dataset, keras.utils.PyDataset)) or is_generator


def _refuse_beside_batches(
    what: str, y: Nested, sample_weight: Nested, class_weight: dict[int, float] | None = None
) -> None:
    given = {"y": y, "sample_weight": sample_weight, "class_weight": class_weight}
    received = [name for name, value in given.items() if value is not None]
    if received:
        raise ValueError(
            f"Expected {what} to hold targets and weights as well. Received: {received} beside "
            "it. Put them into the data: (x, y, sample_weight)."
        )


def _refuse_statement(
    sampling: str | None, sampling_rate: float | None, num_examples: int | None
) -> None:
    if sampling not in (None, "poisson") or sampling_rate is not None or num_examples is not None:
        raise ValueError(
            "Expected sampling, sampling_rate and num_examples only for data that come in "
            f"batches. Received: arrays with sampling={sampling!r}, sampling_rate="
            f"{sampling_rate}, num_examples={num_examples}. Leave them out: fit draws Poisson "
            "samples of expected size batch_size from arrays."
        )
