"""Quickstart.

Trains one small network twice, without and with differential privacy, and compares.

    python examples/quickstart.py                     scikit-learn's digits, under two minutes
    python examples/quickstart.py --dataset mnist     MNIST through tensorflow_datasets
    python examples/quickstart.py --smoke             two epochs, a few seconds

Nothing is downloaded. MNIST is read from where tensorflow_datasets keeps its data, or from the
folder that the environment variable TFDS_DATA_DIR names.
"""

# %%
import argparse
import dataclasses
import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np

import tf_lowrank_dp as tfdp

NO_MNIST = """\
Expected MNIST, prepared for tensorflow_datasets. Received: {reason}
Remedy: pip install -e ".[examples]", then prepare it once, where there is a network:
    python -c "import tensorflow_datasets as tfds; tfds.builder('mnist').download_and_prepare()"
or set TFDS_DATA_DIR to a folder that holds it. The default, --dataset digits, needs neither."""


# %% [markdown]
# ## Data


# %%
@dataclasses.dataclass(frozen=True)
class Task:
    """A data set split in two, and settings that suit its size."""

    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    epochs: int
    batch_size: int
    private_batch_size: int


def digits() -> Task:
    """1,797 images of 8x8 pixels that come with scikit-learn."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    images = (images / 16.0).astype("float32").reshape(-1, 8, 8, 1)
    x, x_test, y, y_test = train_test_split(
        images, labels, test_size=360, stratify=labels, random_state=0
    )
    return Task((x, y), (x_test, y_test), epochs=30, batch_size=32, private_batch_size=512)


def mnist() -> Task:
    """60,000 training and 10,000 test images of 28x28 pixels."""
    try:
        import tensorflow_datasets as tfds

        splits = tfds.load(
            "mnist", split=["train", "test"], batch_size=-1, as_supervised=True, download=False
        )
    except (ImportError, AssertionError, OSError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise SystemExit(NO_MNIST.format(reason=reason)) from error
    train, test = (
        (images.astype("float32") / 255.0, labels) for images, labels in tfds.as_numpy(splits)
    )
    return Task(train, test, epochs=10, batch_size=128, private_batch_size=1024)


# %% [markdown]
# ## One network, two trainings


# %%
def network(shape: tuple[int, ...]) -> keras.Model:
    """A small convolutional network; the same one for both trainings."""
    return keras.Sequential(
        [
            keras.Input(shape),
            keras.layers.Conv2D(16, 3, padding="same", activation="tanh"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(10),
        ]
    )


def train_standard(task: Task, epochs: int) -> keras.Model:
    model = network(task.train[0].shape[1:])
    model.compile(
        optimizer=keras.optimizers.Adam(1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(*task.train, batch_size=task.batch_size, epochs=epochs, verbose=0)
    return model


def train_private(task: Task, epochs: int, epsilon: float) -> keras.Model:
    model = network(task.train[0].shape[1:])
    tfdp.make_private(model)
    model.compile(
        optimizer=tfdp.DPSGDOptimizer(
            keras.optimizers.SGD(0.5, momentum=0.9), l2_norm_clip=1.0, epsilon=epsilon, delta=1e-5
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(*task.train, batch_size=task.private_batch_size, epochs=epochs, verbose=0)
    return model


# %% [markdown]
# ## The comparison


# %%
def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", choices=("digits", "mnist"), default="digits")
    parser.add_argument("--epsilon", type=float, default=3.0, help="privacy budget (default: 3)")
    parser.add_argument("--epochs", type=int, help="default: 30 for digits, 10 for mnist")
    parser.add_argument("--smoke", action="store_true", help="two epochs: does it run?")
    args = parser.parse_args()

    task = {"digits": digits, "mnist": mnist}[args.dataset]()
    epochs = args.epochs or (2 if args.smoke else task.epochs)
    sizes = f"{len(task.train[0])} training and {len(task.test[0])} test examples"
    print(f"data set: {args.dataset}, {sizes}, {epochs} epochs", flush=True)

    trainings = {
        "non-private": lambda: train_standard(task, epochs),
        f"private, epsilon {args.epsilon:g}": lambda: train_private(task, epochs, args.epsilon),
    }
    rows = []
    for name, train in trainings.items():
        print(f"training: {name} ...", flush=True)
        start = time.perf_counter()
        model = train()
        seconds = time.perf_counter() - start
        accuracy = model.evaluate(*task.test, batch_size=512, verbose=0, return_dict=True)
        rows.append((name, f"{accuracy['accuracy']:.1%}", f"{seconds:.1f}"))

    print()
    for name, accuracy, seconds in [("training", "test accuracy", "seconds"), *rows]:
        print(f"{name:<24}{accuracy:>14}{seconds:>10}")
    print(f"\n{tfdp.privacy_statement(model)}")


if __name__ == "__main__":
    main()
