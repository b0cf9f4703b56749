"""From what users give to `fit` to a data set of logical batches and what the accountant needs."""

from __future__ import annotations

import dataclasses

import keras
import tensorflow as tf

from tf_lowrank_dp.accounting import Sampling
from tf_lowrank_dp.sampling import PRESENCE, PoissonSampler, declared_dataset


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Logical batches and how they are drawn.

    Attributes:
        dataset: yields logical batches.
        sampling: how they are drawn.
        steps_per_epoch: integer.
        seeded: whether they follow a given seed.
    """

    dataset: tf.data.Dataset
    sampling: Sampling
    steps_per_epoch: int
    seeded: bool

    @property
    def element_spec(self) -> dict:
        """Spec of a batch without its presence."""
        spec = dict(self.dataset.element_spec)
        del spec[PRESENCE]
        return spec


def training_data(
    model: keras.Model,
    x,
    y,
    *,
    sample_weight,
    class_weight,
    batch_size,
    steps_per_epoch,
    sampling,
    sampling_rate,
    num_examples,
    seed,
    pad_to_multiple,
) -> TrainingData:
    """Samples arrays ourselves; takes the user's word for data sets that are already batched."""
    if isinstance(x, PoissonSampler):
        sampler, seeded = x, x.seeded
    elif _is_batched(x):
        dataset, declared = declared_dataset(
            x,
            sampling=sampling,
            batch_size=batch_size,
            num_examples=num_examples,
            sampling_rate=sampling_rate,
            steps_per_epoch=steps_per_epoch,
        )
        steps = steps_per_epoch or declared.steps_per_pass or int(dataset.cardinality())
        return TrainingData(_preprocessed(model, dataset), declared, steps, False)
    else:
        _refuse_arguments(sampling, sampling_rate, num_examples)
        sampler = PoissonSampler(
            x,
            y,
            batch_size=32 if batch_size is None else batch_size,
            sample_weight=sample_weight,
            class_weight=class_weight,
            pad_to_multiple=pad_to_multiple,
            seed=seed,
        )
        seeded = sampler.seeded
    dataset = _preprocessed(model, sampler.as_dataset())
    steps = steps_per_epoch or sampler.steps_per_epoch
    return TrainingData(dataset, sampler.sampling, steps, seeded)


def _is_batched(x) -> bool:
    is_generator = hasattr(x, "__next__") or callable(x)
    return isinstance(x, (tf.data.Dataset, keras.utils.PyDataset)) or is_generator


def _refuse_arguments(sampling, sampling_rate, num_examples) -> None:
    if sampling not in (None, "poisson") or sampling_rate is not None or num_examples is not None:
        raise ValueError(
            "Expected sampling, sampling_rate and num_examples only for data that come in "
            f"batches. Received: arrays with sampling={sampling!r}, sampling_rate="
            f"{sampling_rate}, num_examples={num_examples}. Leave them out: fit draws Poisson "
            "samples of expected size batch_size from arrays."
        )


def _preprocessed(model: keras.Model, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Applies the preprocessor of a KerasHub task after sampling; presence stays a channel apart."""
    if not hasattr(model, "preprocess_samples"):
        return dataset

    def preprocess(batch):
        batch = dict(batch)
        processed = model.preprocess_samples(
            batch.pop("x"), batch.pop("y", None), batch.pop("sample_weight", None)
        )
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(processed)
        batch["x"] = x
        if y is not None:
            batch["y"] = y
        if sample_weight is not None:
            batch["sample_weight"] = sample_weight
        return batch

    return dataset.map(preprocess, num_parallel_calls=tf.data.AUTOTUNE)
