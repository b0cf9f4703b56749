"""What TensorFlow's kernels leave out on some processors."""

import contextlib
from collections.abc import Iterator

import pytest
import tensorflow as tf

_MISSING = ("do not yet support dilation rates", "grouped convolutions are not supported on CPU")


@contextlib.contextmanager
def skipped_without_kernel() -> Iterator[None]:
    """Skips a test of a gradient that TensorFlow has with oneDNN alone.

    oneDNN is on by default where a processor has AVX-512 or better, and off elsewhere.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        if not any(text in str(error) for text in _MISSING):
            raise
        pytest.skip("TensorFlow has no such gradient on this processor without oneDNN.")
