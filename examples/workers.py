"""Trains one private model by several workers, one process for each device.

    python -m tf_lowrank_dp.launch -n 2 examples/workers.py           two processes of this machine
    python -m tf_lowrank_dp.launch -n 2 examples/workers.py --smoke   the same, a few steps
    python examples/workers.py                                        one process

On a cluster it runs unchanged: whatever starts the processes sets TF_CONFIG (docs/scale.md).
"""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import tf_lowrank_dp as tfdp


def digits() -> tuple[np.ndarray, np.ndarray]:
    """1,797 images of 8x8 pixels that come with scikit-learn, in the same order on all workers."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    return (images / 16.0).astype("float32"), labels


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="one epoch: does it run?")
    parser.add_argument("--folder", help="where the ledger and a backup are kept")
    args = parser.parse_args()

    workers = tfdp.join_workers()  # before anything else is done with TensorFlow
    x, y = digits()
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(128, activation="tanh"),
            keras.layers.Dense(10),
        ]
    )
    ledger = None if args.folder is None else os.path.join(args.folder, "ledger.jsonl")
    tfdp.make_private(model, workers=workers, ledger_path=ledger)
    model.compile(
        tfdp.RGPOptimizer("adam", rank=8, l2_norm_clip=1.0, epsilon=3.0, delta=1e-4),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    callbacks = []
    if args.folder is not None:
        callbacks.append(keras.callbacks.BackupAndRestore(os.path.join(args.folder, "backup")))
    epochs = 1 if args.smoke else 30
    model.fit(x[:1500], y[:1500], batch_size=256, epochs=epochs, verbose=2, callbacks=callbacks)
    if workers.is_chief:
        accuracy = model.evaluate(x[1500:], y[1500:], verbose=0)[1]
        print(f"{workers.count} workers, test accuracy {accuracy:.1%}")
        print(tfdp.privacy_statement(model))


if __name__ == "__main__":
    main()
