"""What several workers compare, and what they take from the chief, before the first step."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp.accounting import PrivacyLedger
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.optimizers.base import DPOptimizer
from tf_lowrank_dp.optimizers.ledger_in_file import values_of
from tf_lowrank_dp.sampling.rows_digest import rows_digest
from tf_lowrank_dp.spending import SPENDING
from tf_lowrank_dp.training.data import TrainingData
from tf_lowrank_dp.training.state import ledger_of, ledger_with, look, things_of
from tf_lowrank_dp.workers import Workers
from tf_lowrank_dp.workers.agreement import refuse_differences, refuse_same_rows
from tf_lowrank_dp.workers.join import joined


@dataclasses.dataclass(frozen=True)
class ChiefsChoice:
    """What one worker chooses for all when a run begins.

    Attributes:
        noise_multiplier: of the run.
        entry_id: of the run's line in the ledger: its steps count once, not once a worker.
        public_seed: of the public random numbers; None alone, where they have a key of their own.
    """

    noise_multiplier: float
    entry_id: str
    public_seed: int | None


def refuse_other_workers(workers: Workers) -> None:
    """Refuses a model that would be trained by this process alone, among others that were joined.

    Raises:
        UnsupportedModelError: the workers are not those of `join_workers`.
    """
    if workers is not joined():
        raise UnsupportedModelError(
            f"Expected the workers of this process, {joined()!r}. Received: a private model of "
            f"{workers!r}. Pass what tfdp.join_workers() returns: make_private(model, workers=...)."
        )


def refuse_custom_loop(workers: Workers) -> None:
    """Refuses loops of a user's own on several workers.

    Raises:
        UnsupportedModelError: there are several.
    """
    if not workers.alone:
        raise UnsupportedModelError(
            f"Expected one process for a custom loop. Received: {workers!r}, whose batches nobody "
            "knows to come from rows of its own. Use model.fit, or train in one process."
        )


def compare(
    model: keras.Model,
    optimizer: DPOptimizer,
    workers: Workers,
    facts: Mapping[str, object],
    reads: Sequence[tf.Tensor],
) -> None:
    """Refuses workers that differ, and gives each of them the ledgers of all.

    Args:
        model: compiled with the optimizer.
        optimizer: takes the noise multiplier that the chief's has been calibrated to.
        workers: several.
        facts: what else has to be the same, by name.
        reads: handles of variables that this worker's steps are going to read; others may have
            another private teacher.

    Raises:
        Disagreement: they differ; with a table.
    """
    look(model)
    ledger, sigma = ledger_with(model, reads), optimizer.calibrated_noise_multiplier
    mine = {name: _text(v) for name, v in {**_of_model(model, optimizer), **facts}.items()}
    texts = workers.gather(json.dumps([mine, ledger.to_json(), sigma]))
    facts_of_all, ledgers, sigmas = zip(*map(json.loads, texts), strict=True)
    refuse_differences(facts_of_all)
    _take(model, [text for index, text in enumerate(ledgers) if index != workers.index])
    if sigmas[0] is not None:
        optimizer.calibrated_noise_multiplier = sigmas[0]


def share_ledgers(model: keras.Model, workers: Workers) -> None:
    """Gives each worker the ledgers of all, of what their steps have read since they compared."""
    _take(model, workers.gather(ledger_of(model).to_json()))


def _take(model: keras.Model, ledgers: Iterable[str]) -> None:
    for text in ledgers:
        others, held = PrivacyLedger.from_json(text), ledger_of(model)
        union = PrivacyLedger(held.entries, prior_spend_unknown=held.prior_spend_unknown)
        union.merge(others)
        if union != held:
            SPENDING.add(things_of(model), others)


def chosen_by_chief(workers: Workers, noise_multiplier: float, seed: int | None) -> ChiefsChoice:
    """The same choice on every worker; alone its own.

    Args:
        workers: one or several.
        noise_multiplier: that this worker would take.
        seed: of the optimizer.
    """
    public_seed = seed if workers.alone or seed is not None else secrets.randbits(63)
    mine = ChiefsChoice(noise_multiplier, uuid.uuid4().hex, public_seed)
    chiefs = workers.gather(json.dumps(dataclasses.asdict(mine)))[0]
    return mine if workers.alone else ChiefsChoice(**json.loads(chiefs))


def take_values_of_chief(
    model: keras.Model, optimizer: DPOptimizer, shapes: object, workers: Workers
) -> None:
    """Gives every worker the chief's weights, and all that its optimizer keeps.

    Args:
        model: with its weights.
        optimizer: that was built.
        shapes: of what a step releases.
        workers: one or several.
    """
    if workers.alone:
        return
    state = optimizer.algorithm_state
    named = {name: state[name] for name in sorted(state.names)}
    sizes = {name: tuple(variable.shape) for name, variable in named.items()}
    mine = {"what a step releases": _text(shapes), "state of the optimizer": _text(sizes)}
    refuse_differences([json.loads(text) for text in workers.gather(json.dumps(mine))])
    variables = [*model.weights, *optimizer.variables, *named.values()]
    values = [tf.convert_to_tensor(variable) for variable in variables]
    for variable, value in zip(variables, workers.of_chief(values, "values"), strict=True):
        variable.assign(value)
    SPENDING.see(values_of(model))


def facts_of(
    data: TrainingData, epochs: int, augment: object, workers: Workers
) -> dict[str, object]:
    """What has to be the same on all workers, beside model and optimizer.

    Args:
        data: which this worker draws from.
        epochs: of the call of `fit`.
        augment: what is applied to the inputs, or None.
        workers: several.

    Raises:
        Disagreement: two workers have the same rows, and both have said that they are its own.
    """
    assert data.rows_digest is not None
    # Digests are printed where workers differ; without the key of this run they say nothing.
    words = workers.gather_numbers(*(secrets.randbits(31) for _ in range(5)))[0]
    key = b"".join(word.to_bytes(4, "little") for word in words)
    shared = data.sampling.shards == 1
    digest = data.rows_digest(key, ordered=shared)
    facts = {
        "epochs and their steps": [epochs, data.steps_per_epoch],
        "augment": _described(augment),
    }
    if shared:
        return {"rows, in their order": digest, **facts}
    refuse_same_rows(workers.gather(digest))
    return {"kind of rows": data.element_spec, **facts}


def _of_model(model: keras.Model, optimizer: DPOptimizer) -> dict[str, object]:
    from tf_lowrank_dp import __version__

    inner = optimizer.inner_optimizer
    public = optimizer.public_data
    return {
        "versions": f"tf_lowrank_dp {__version__}, Keras {keras.__version__}, TensorFlow "
        f"{tf.__version__}, NumPy {np.__version__}",
        "model": [
            type(model).__name__,
            *((v.path, tuple(v.shape), v.dtype, v.trainable) for v in model.weights),
        ],
        "layers and their settings": _digest_of_config(model),
        "loss": _described(model.loss),
        "optimizer": [
            type(optimizer).__name__,
            _without_name(optimizer.privacy_settings),
            optimizer.seed,
        ],
        "inner optimizer": _described(inner),
        "public data": public and rows_digest({"x": public.features}, None, b""),
        "precision": [keras.config.floatx(), keras.config.dtype_policy().name],
        "compiled": [model.jit_compile, model.run_eagerly, model.steps_per_execution],
    }


def _digest_of_config(model: keras.Model) -> str:
    try:
        config = json.dumps(model.get_config(), default=_text, sort_keys=True)
    except Exception:  # a model that cannot say of what it is made
        return "unknown"
    return hashlib.blake2b(_text(config).encode(), digest_size=16).hexdigest()


def _described(thing: Any) -> object:
    """The class and settings of a loss, optimizer or layer, the name of a function."""
    if isinstance(thing, keras.losses.Loss | keras.optimizers.Optimizer | keras.layers.Layer):
        try:
            return [type(thing).__name__, _without_name(thing.get_config())]
        except Exception:  # one that cannot be saved
            return type(thing).__name__
    return getattr(thing, "__qualname__", thing)


def _without_name(settings: Mapping[str, object]) -> dict[str, object]:
    """Names are counted up in each process."""
    return {key: value for key, value in settings.items() if key != "name"}


def _text(value: object) -> str:
    """What is the same in all processes for the same value: without places in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", str(value))
