"""What the graph of a custom loop reads around the functions that it gives to a trainer."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp._types import Nested
from tf_lowrank_dp.tracing.read_behind import handles_behind
from tf_lowrank_dp.training.counted_reads import check_again, count_reads
from tf_lowrank_dp.training.handed_out import HandedOut
from tf_lowrank_dp.training.state import Run
from tf_lowrank_dp.training.written_beside import tell_what_is_written_beside


def count_what_is_behind(
    model: keras.Model, run: Run, going_in: Nested, released: HandedOut, added: bool = False
) -> None:
    """Counts what was spent on variables that batches, or gradients, of a graph are computed from.

    Guarantee: where a `tf.function` asks a private teacher of its batch, beside the function that
    it gives to the trainer, or adds to released gradients what it has computed of another private
    model, what was spent on these counts, now and later.  Eager tensors do not tell what they were
    computed from, nor do arguments of the outermost function, or of one that was traced before, nor
    what a loop carries from one step to the next, nor sums in variables; and who decides whether a
    step is taken is not looked at.

    Args:
        model: that is trained.
        run: of the model.
        going_in: nested tensors that go into a release or an update.
        released: what this run has released itself, whose past is known.
        added: whether these are gradients, to which the loop may have added something.

    Raises:
        PrivacyBudgetExceededError: a step would overspend, with that or with what `forward` reads.
        ValueError: no epsilon could be stated with that.
    """
    handles = handles_behind(tf.nest.flatten(going_in), known=released.holds)
    if handles:
        count_reads(run, handles, added=added)
        tell_what_is_written_beside(model)  # what is read is known from now on
    check_again(run)
