"""Bytes that workers send in a step, counted at the loopback interface, and what shapes say.

Linux only; where nothing else uses the interface, such as in a network of its own:

unshare -n sh -c "ip link set lo up && python -m benchmarks.speed.worker_traffic"
"""

import argparse
import json
import math
import os
import socket
import sys
import time

import keras
import numpy as np

import tf_lowrank_dp as tfdp

WIDTH, STEPS = 512, 20
OPTIMIZERS = {
    "dpsgd": lambda **privacy: tfdp.DPSGDOptimizer("sgd", **privacy),
    "rgp": lambda **privacy: tfdp.RGPOptimizer("sgd", rank=8, **privacy),
    "lsg": lambda **privacy: tfdp.LSGOptimizer("sgd", rank=8, sparsity=0.5, **privacy),
}


def sent() -> int:
    """Bytes that the loopback interface has sent."""
    with open("/proc/net/dev") as file:
        [line] = [line for line in file if line.strip().startswith("lo:")]
    return int(line.split()[9])


class Counted(keras.callbacks.Callback):
    """Bytes and seconds of all steps but the first, which is traced."""

    def on_train_batch_end(self, batch, logs=None):
        if batch == 0:
            self.first, self.begin = sent(), time.perf_counter()
        self.bytes = (sent() - self.first) / max(batch, 1)
        self.seconds = (time.perf_counter() - self.begin) / max(batch, 1)


def train(name: str, workers) -> dict:
    """What a step sends, and what the shapes of its release say."""
    x = np.random.default_rng(0).normal(size=(256, WIDTH)).astype("float32")
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((WIDTH,)), dense(WIDTH), dense(WIDTH), dense(2)])
    tfdp.make_private(model, workers=workers)
    optimizer = OPTIMIZERS[name](l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3)
    model.compile(optimizer, loss="mse", jit_compile=False)
    counted = Counted()
    y = np.zeros((256, 2), "float32")
    model.fit(x, y, batch_size=32, steps_per_epoch=STEPS, verbose=0, callbacks=[counted])
    space = model._privacy_state.run.engine.space
    released = sum(math.prod(shape) for block in space.shapes for shape in block)
    matrices = [v.shape for v in model.trainable_variables if tuple(v.shape) == (WIDTH, WIDTH)]
    units = sum(sum(shape) for shape in matrices)
    subspace = 0 if name == "dpsgd" else 8 * units + units * (name == "lsg")
    if name == "lsg":
        released -= 8 * units // 2
    # In a ring of K each number is sent 2 (K - 1) times in all, from the chief to all K - 1 times.
    expected = 4 * (workers.count - 1) * (2 * released + subspace)
    return {"bytes a step": counted.bytes, "of shapes": expected, "seconds": counted.seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2)
    count = parser.parse_args().workers
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    for index in range(count):
        if os.fork():
            continue
        task = {"type": "worker", "index": index}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        workers = tfdp.join_workers()
        for name in OPTIMIZERS:
            found = train(name, workers)
            if workers.is_chief:
                print(name, {key: round(value, 4) for key, value in found.items()}, flush=True)
        os._exit(0)
    return max(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(count))


if __name__ == "__main__":
    sys.exit(main())
