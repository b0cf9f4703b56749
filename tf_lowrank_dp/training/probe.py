"""A probe on random data: are examples independent, is state kept, are gradients right?

Types tell only of the layers we know.  Before the first step the model is run on a handful of
random rows in the shape of the data, never on the data themselves.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.gradient_methods.backward import Forward
from tf_lowrank_dp.tracing.batch_size import is_used_as_number
from tf_lowrank_dp.tracing.random_ops import ConstantSource, FixedSource, LowSource
from tf_lowrank_dp.training.compared_losses import check_equal, rounding
from tf_lowrank_dp.training.gradient_probe import check_gradients
from tf_lowrank_dp.training.missing_values import with_missing
from tf_lowrank_dp.training.raised_gates import with_raised_gates
from tf_lowrank_dp.training.random_batch import RANGES, random_batch, random_weights
from tf_lowrank_dp.training.row_proof import RowProof
from tf_lowrank_dp.training.traced_losses import TracedLosses, creates

_ROWS = 3
_SIZES = (17, 257)  # where the size of the batch is a number in the model
_SENTENCES = ((1, 4), (5, 8))  # words
_LARGE = (1e3, 1e6)  # beside which a small share of other rows shows


@contextlib.contextmanager
def _as_traced() -> Iterator[None]:
    """Context in which graphs run as they were traced: to optimise them takes longer than to run.

    Few of them run more than twice, on a handful of rows.
    """
    name, options = "disable_meta_optimizer", tf.config.optimizer
    before = options.get_experimental_options().get(name, False)
    options.set_experimental_options({name: True})
    try:
        yield
    finally:
        options.set_experimental_options({name: before})


@_as_traced()
def probe(
    model: keras.Model,
    forward: Forward,
    element_spec: dict,
    recorded: bool = True,
    prove: Callable[[tf.Graph], RowProof] | None = None,
) -> RowProof:
    """Checks that each example's loss depends on this example alone, and its gradient is right.

    Comparisons, each with equal random numbers in dropout and the like: all other examples
    changed must leave the losses of the first and of the last as they were, and other sizes of the
    batch that of the first (here each draw has one number for all rows), unless it is proven that
    rows are kept apart and their number is no number of the model; the weighted sum of the
    per-example gradients of recorded layers must be what ordinary differentiation gives, so that
    none is missing, counted twice or in another example's row; and no variable but seeds and
    metrics may be updated, and none created.

    Args:
        model: a built model.
        forward: takes `{"x", "y", "sample_weight"}` and returns losses `(b,)` and more.
        element_spec: nested `tf.TensorSpec` of such a batch.
        recorded: whether layers will be recorded; then their gradients are compared.
        prove: tells from the traced losses what is proven of the pass that will be trained; None
            where nothing is.

    Returns:
        What is proven.

    Raises:
        UnsupportedModelError: examples are coupled, joined with another axis or exchanged, the
            gradient of a variable would be wrong, or state is changed or created.
    """
    generator = np.random.default_rng(0)
    source = FixedSource()
    together = alike = TracedLosses(model, forward, element_spec, source)
    _check_state(model, together.changed)
    # Random numbers that are the same for all rows do not depend on how many there are.
    again = functools.partial(TracedLosses, model, forward, element_spec, ConstantSource())
    if together.created:
        # What only the first call creates, such as the trackers of several losses, is allowed.
        alike = again()
    if alike.created:
        raise creates(model, f"'{alike.created[0].path}'")
    present = [tf.convert_to_tensor(variable) for variable in model.trainable_variables]
    weights = [present, random_weights(present, generator)]
    # Texts of the second batch are longer: padding to the longest of a batch couples examples.
    batches = [
        [
            random_batch(model, element_spec, generator, _ROWS, lengths, numbers)
            for lengths in _SENTENCES
        ]
        for numbers in RANGES
    ]
    compared, usable = False, []
    for first, other in batches:
        try:
            for values in weights:
                compared |= _check_others(together, first, other, values)
            usable.append((first, other))
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
            if usable:
                continue  # Ids, for example, for which the model has no rows.
            if any(spec.dtype == tf.string for spec in tf.nest.flatten(element_spec)):
                raise _reads_other_strings(model) from error
            raise _fails(model, error) from error
    proof = RowProof(False) if prove is None else prove(together.graph)
    proven = proof.proven
    sizes = is_used_as_number(together.graph)
    if sizes or not proven:
        if source.was_used and alike is together:
            alike = again()
        for first, _ in usable:
            try:
                for values in weights:
                    _check_few(alike, first, values)
            except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError) as error:
                raise _fails(model, error) from error
    if usable and not proven and source.was_used:
        low = TracedLosses(model, forward, element_spec, LowSource())
        _check_others(low, *usable[0], weights[-1])
    if usable and (sizes or not proven):
        _check_unproven(together, alike, usable[0], weights[-1], sizes, missing=not proven)
        raised = [with_raised_gates(t.function, generator) for t in {together, alike}]
        for _ in itertools.zip_longest(*raised):
            with contextlib.suppress(tf.errors.OpError):  # such as a counter beyond a table
                _check_others(together, *usable[0], weights[-1])
                _check_few(alike, usable[0][0], weights[-1])
                _check_unproven(together, alike, usable[0], weights[-1], sizes, missing=not proven)
    if recorded and (proven or prove is None):
        both = [tf.nest.map_structure(lambda a, b: tf.concat([a, b], 0), *pair) for pair in usable]
        check_gradients(model, forward, together.graph, both, weights[::-1])
    if not (compared or proven):
        raise UnsupportedModelError(
            "Expected finite losses on random data, by which a model is tried before it trains. "
            f"Received: '{model.name}', whose losses are NaN or infinite on all of them, with its "
            "own weights and with random ones. Let its layers and loss be finite for numbers "
            "between 0 and 1, or for those of a normal distribution."
        )
    return proof


def _check_others(
    together: TracedLosses, first: Nested, other: Nested, values: Sequence[tf.Tensor]
) -> bool:
    """Compares the losses of rows beside other rows; returns whether any were finite."""
    keep_first = tf.nest.map_structure(lambda a, b: tf.concat([a[:1], b[1:]], 0), first, other)
    keep_last = tf.nest.map_structure(lambda a, b: tf.concat([b[:-1], a[-1:]], 0), first, other)
    losses = together(first, values)
    _check_shape(losses)
    compared = False
    for row, batch in ((0, keep_first), (-1, keep_last)):
        beside_others = together(batch, values)[row]
        compared |= check_equal(
            losses[row],
            beside_others,
            "the other examples of its batch",
            functools.partial(rounding, together, first, values, row),
        )
    return compared


def _check_few(alike: TracedLosses, batch: Nested, values: Sequence[tf.Tensor]) -> None:
    """Compares the loss of a row alone and beside one more."""
    alone = tf.nest.map_structure(lambda a: a[:1], batch)
    longer = tf.nest.map_structure(lambda a: tf.concat([a, a[-1:]], 0), batch)
    whole = alike(batch, values)
    for other in (alone, longer):
        check_equal(
            whole[0],
            alike(other, values)[0],
            "the size of its batch",
            functools.partial(rounding, alike, batch, values, 0),
        )


def _check_unproven(
    together: TracedLosses,
    alike: TracedLosses,
    pair: tuple[Nested, Nested],
    values: Sequence[tf.Tensor],
    sizes: bool,
    missing: bool,
) -> None:
    """Compares losses of batches of other sizes, with missing values, beside larger numbers."""
    if sizes:
        _check_sizes(alike, pair[0], values)
    beside = [(pair[0], _times(pair[1], scale)) for scale in _LARGE]
    for first, other in [*beside, *with_missing(*pair)] if missing else ():
        with contextlib.suppress(tf.errors.OpError):  # such as ids of no row
            _check_others(together, first, other, values)
            _check_few(alike, first, values)


def _times(batch: Nested, scale: float) -> Nested:
    """A batch whose floating-point numbers are larger."""
    return tf.nest.map_structure(lambda t: t * scale if t.dtype.is_floating else t, batch)


def _check_sizes(alike: TracedLosses, batch: Nested, values: Sequence[tf.Tensor]) -> None:
    """Compares the loss of a row in batches of sizes that an ordinary one has."""
    first = alike(batch, values)[0]
    for rows in _SIZES:
        copies = -(-rows // _ROWS)
        larger = tf.nest.map_structure(
            lambda leaf, n=copies, rows=rows: tf.concat([leaf] * n, 0)[:rows], batch
        )
        check_equal(
            first,
            alike(larger, values)[0],
            "the size of its batch",
            functools.partial(rounding, alike, batch, values, 0),
        )


def _reads_other_strings(model: keras.Model) -> UnsupportedModelError:
    return UnsupportedModelError(
        "Expected strings of words, which are looked up: a model is tried on random ones before it "
        f"trains. Received: '{model.name}', which fails on them. Decode images, numbers, dates and "
        "the like before sampling, so that the model gets tensors of numbers."
    )


def _fails(model: keras.Model, error: tf.errors.OpError) -> UnsupportedModelError:
    return UnsupportedModelError(
        "Expected a model and losses that run on random data in the shapes of yours, with any "
        f"number of rows, and give one loss per example. Received: '{model.name}', which fails on "
        f"them ({str(error).strip().splitlines()[0]}). A loss that is reduced, or reshaped, over "
        "more than its own example has no value per example; a table must have a row for other ids "
        "(num_oov_indices=1)."
    )


def _check_state(model: keras.Model, changed: Sequence[tf.Tensor]) -> None:
    if changed:
        raise UnsupportedModelError(
            "Expected a forward pass that changes no state but random seeds. Received: "
            f"'{model.name}' updates {[v.path for v in changed]} in its call, which would be "
            "saved without noise. A mask of a kernel belongs into a constraint of it "
            "(kernel_constraint=...), which is applied after each update; replace layers that keep "
            "statistics of what they see."
        )


def _check_shape(losses: tf.Tensor) -> None:
    if losses.shape.rank != 1 or losses.shape[0] != _ROWS:
        raise UnsupportedModelError(
            f"Expected one loss per example, shape ({_ROWS},) for {_ROWS} examples. Received: "
            f"shape {tuple(losses.shape)}. Let the loss keep its first axis."
        )
