"""Records a second from files by index: our Poisson draws against tf.data's shuffled batches.

    python -m benchmarks.speed.record_throughput --records 10000000

Both read a record by its index from one file (`tf.data` cannot hold 10^7 small ones), decode and
scale it.  Printed are medians of alternating rounds, and the peak memory of each in a process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator

import numpy as np

_SIDE = 16


def _load(path: str, kind: str, records: int, batch: int) -> Iterator:
    import tensorflow as tf

    import tf_lowrank_dp as tfdp

    def decode(index: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        name = tf.strings.join([path, "/", tf.strings.as_string(index % 1000)])
        image = tf.io.decode_raw(tf.io.read_file(name), tf.uint8)
        image = tf.reshape(image, (_SIDE, _SIDE, 1))
        return tf.cast(image, tf.float32) / 255.0, index % 10

    if kind == "poisson":
        source = tfdp.Records(range(records), map=decode)
        return iter(tfdp.PoissonSampler(source, batch_size=batch).as_dataset())
    dataset = tf.data.Dataset.range(records).shuffle(100_000)
    dataset = dataset.map(decode, num_parallel_calls=tf.data.AUTOTUNE).batch(batch)
    return iter(dataset.prefetch(tf.data.AUTOTUNE))


def _measure(
    path: str, kind: str, records: int, batch: int, steps: int, found: multiprocessing.Queue
) -> None:
    batches = _load(path, kind, records, batch)
    for _ in range(20):
        next(batches)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    for _ in range(steps):
        next(batches)
    rate = steps * batch / (time.perf_counter() - begin)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found.put((rate, (after - before) / 1024.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10**7)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    results: dict[str, list] = {"shuffled": [], "poisson": []}
    with tempfile.TemporaryDirectory() as path:
        for number in range(1000):
            pixels = np.full(_SIDE * _SIDE, number % 256, np.uint8)
            pixels.tofile(f"{path}/{number}")
        for _ in range(arguments.rounds):
            for kind, rounds in results.items():
                found = context.Queue()
                numbers = arguments.records, arguments.batch, arguments.steps
                process = context.Process(target=_measure, args=(path, kind, *numbers, found))
                process.start()
                rounds.append(found.get())
                process.join()
    for kind, rounds in results.items():
        rates, growth = zip(*rounds, strict=True)
        print(f"{kind}: {statistics.median(rates):,.0f} records/s, +{max(growth):.0f} MiB")


if __name__ == "__main__":
    main()
