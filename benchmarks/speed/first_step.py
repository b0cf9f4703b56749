"""Seconds of the first `fit` of the public examples in `tests/compatibility`, private over plain.

One step each, with tracing and whatever is compiled: what somebody waits for who tries the package.
Examples that are refused are left out.
"""

import os
import statistics
import tempfile
import time

import keras

from tests.compatibility.case import Example, Run, train
from tests.compatibility.public_examples import EXAMPLES


class _Stop(keras.callbacks.Callback):
    """Ends `fit` after its first step."""

    def on_train_batch_end(self, batch: int, logs: dict | None = None) -> None:
        self.model.stop_training = True


def one_step(run: Run) -> Run:
    """The run with a single step and no validation, which both would do alike."""
    kept = ("x", "y", "batch_size", "class_weight", "steps_per_epoch")
    run.fit = {key: value for key, value in run.fit.items() if key in kept}
    run.fit["callbacks"] = [_Stop()]
    return run


def seconds(example: Example, private: bool) -> float:
    """Time of `compile` and of a `fit` of one step."""
    run = one_step(example.build())
    start = time.perf_counter()
    if private:
        train(run, example.statement)
    else:
        run.model.compile(optimizer=run.optimizer, jit_compile=False, **run.compile)
        run.model.fit(**run.fit, verbose=0)
    return time.perf_counter() - start


def main() -> None:
    os.chdir(tempfile.mkdtemp())
    trained = [example for example in EXAMPLES if not example.cause]
    seconds(trained[0], private=True)  # warms TensorFlow up
    ratios = []
    for example in trained:
        plain, private = seconds(example, private=False), seconds(example, private=True)
        ratios.append(private / plain)
        print(f"{example.name:30} {plain:8.2f} {private:8.2f} {ratios[-1]:8.2f}")
    print(f"median of {len(ratios)}: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
