"""The error where what recorded layers give is not the gradient of each example."""

from __future__ import annotations

from tf_lowrank_dp.errors import UnsupportedModelError


class NotRecordedError(UnsupportedModelError):
    """The model cannot be differentiated with layers recorded, but may be one example at a time.

    With `gradient_method="auto"` it is, and a warning says why; who has asked for recorded layers
    gets the error.

    Args:
        message: with the remedies.
        by: what cannot be recorded, as the warning names it; by default as of `other_rows`, whose
            errors Keras makes anew from their messages alone.

    Example:

    >>> error = NotRecordedError("Expected ...", "what uses 'kernel' outside of its layer")
    >>> isinstance(error, UnsupportedModelError), error.by
    (True, "what uses 'kernel' outside of its layer")
    """

    def __init__(self, message: str, by: str = "a layer whose output has another first axis,"):
        super().__init__(message)
        self.by = by


def other_rows(layer: str, shape: tuple, examples: int | str) -> NotRecordedError:
    """That of a layer whose output has another number of rows than there are examples."""
    return NotRecordedError(
        f"Expected the first axis of the output of layer '{layer}' to be that of the examples. "
        f"Received: shape {shape}, and {examples} examples. If the output is the same for all "
        "examples, give the layer's input a first axis of length 1 (keras.ops.expand_dims(x, 0)) "
        "and keep it. If examples were joined with another axis, keep the rows of each next to "
        "each other, put the layer into one of your own, which is then differentiated as a whole, "
        "or use gradient_method='auto'."
    )
