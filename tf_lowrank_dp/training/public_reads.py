"""What gradients of public data read, such as a private teacher that labels the public examples."""

from __future__ import annotations

import keras
import tensorflow as tf

from tf_lowrank_dp.tracing.traced_part import TracedPart
from tf_lowrank_dp.training.state import find_run
from tf_lowrank_dp.training.written_beside import tell_what_is_written_beside


class PublicReads:
    """Counts what the compiled loss reads of public data for the run whose basis is found by it.

    Guarantee: what was spent on other models' variables that it reads counts, as it does for what
    the forward pass of the private examples reads, where these read nothing of them.

    Args:
        model: private.

    Attributes:
        handles: of variables that were found to be read so far.
    """

    def __init__(self, model: keras.Model):
        self._model = model
        self.handles: list[tf.Tensor] = []

    def count(self, part: TracedPart) -> None:
        """Counts what is differentiated, at once where the run has judged its private examples.

        Raises:
            PrivacyBudgetExceededError: the step that is traced would overspend with that.
            UnsupportedModelError: it reads what metrics write.
            ValueError: no epsilon could be stated with that.
        """
        self.handles += part.reads
        run = find_run(self._model)
        if run is None or run.public_reads is not self.handles or run.judged is None:
            return  # a basis that is kept is traced before its run begins
        before = run.judged.number_read
        run.judged.count(part)
        if run.judged.number_read > before:
            tell_what_is_written_beside(self._model)  # others may write it from now on
