"""Gradients before the first step: GEP's Figure 1 and LSG's Figure 1, as figures.

python -m benchmarks.reproductions.first_gradients --data-dir DIR --json first_gradients.json
python -m benchmarks.reproductions.first_gradients --data-dir DIR --parts noise

`noise`: by how much the noise of DP-SGD exceeds the gradient as the same network becomes wider, on
CIFAR-10, 500 of 45,000 images a step, the noise of epsilon 5 after 90 epochs as in the paper.
`neurons`: which share of a transformer's gradient lies in the rows and columns that LSG would keep
because their weights are large.  The model of `benchmarks.reproductions.sst2`, with a random
classifier.
`centring`: which share of the energy of per-example gradients is left when what layers see is
centred, on images with ReLU and with tanh, and for that transformer.
"""

import argparse
import functools
import math
import os
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import tf_lowrank_dp as tfdp
from benchmarks.reproductions import accuracy, sst2
from benchmarks.reproductions.mnist import load_images
from benchmarks.results.records import Records
from benchmarks.results.report import origin
from tf_lowrank_dp.diagnostics.batch_gradients import (
    chosen_matrices,
    gradient_matrices,
    whole_batch,
)
from tf_lowrank_dp.gradient_methods.methods import METHODS
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.per_example.centrable import centrable

ORIGIN = origin(__file__)
FACTORS = (0.25, 0.5, 1, 2, 4)
IMAGES, EXAMPLES, EPOCHS = 500, 45_000, 90
EPSILON, DELTA, L2_NORM_CLIP, CHUNK = 5.0, 1e-5, 1.0, 20
SENTENCES, KEPT = 512, 0.5


@functools.cache
def noise_multiplier() -> float:
    """Of all networks: it depends on the sampling alone."""
    return tfdp.calibrate_noise_multiplier(
        EPSILON, DELTA, batch_size=IMAGES, num_examples=EXAMPLES, epochs=EPOCHS
    )


def noise(images: tuple[np.ndarray, np.ndarray], factor: float) -> dict[str, float]:
    """Norms of the mean of the clipped gradients and of its noise.

    Args:
        images: and their labels, `IMAGES` of them.
        factor: width over that of the network of `benchmarks.accuracy`.
    """
    keras.utils.set_random_seed(0)
    widths = [int(factor * width) for width in (32, 64, 128)]
    model = accuracy.cifar10_cnn("relu", widths)
    head = model.layers[-1].kernel  # zeros would hide the other layers
    head.assign(keras.initializers.GlorotUniform(seed=1)(head.shape))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    total = np.zeros(model.count_params())
    for start in range(0, IMAGES, CHUNK):
        x, y = (tf.constant(part[start : start + CHUNK]) for part in images)
        with tf.GradientTape() as tape:
            losses = loss(y, model(x, training=True))
        jacobian = tape.jacobian(losses, model.trainable_variables)
        rows = np.concatenate([np.reshape(j, (len(x), -1)) for j in jacobian], axis=1)
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
        total += (rows * np.minimum(1.0, L2_NORM_CLIP / norms)).sum(0)
    return {
        "weights": total.size,
        "gradient": float(np.linalg.norm(total)) / IMAGES,
        "noise": noise_multiplier() * L2_NORM_CLIP * math.sqrt(total.size) / IMAGES,
    }


def share(gradient: np.ndarray, importance: np.ndarray, axis: int) -> float:
    """Share of a matrix' energy in the rows (0) or columns (1) of the largest importance."""
    energy = np.sum(gradient**2, axis=1 - axis)
    kept = np.argsort(importance)[-int(KEPT * len(importance)) :]
    return float(energy[kept].sum() / energy.sum())


def transformer(args: argparse.Namespace) -> tuple[keras.Model, sst2.Features]:
    """The last layer of MiniLM with a random classifier, and what it sees of some sentences."""
    keras.utils.set_random_seed(0)
    folder = sst2.weights_dir(None)
    settings = sst2.parse_args(["--data-dir", args.data_dir, "--trained-layers", "1"])
    tokens, labels = (array[:SENTENCES] for array in sst2.load_data(settings).train)
    split = sst2.Split(sst2.truncated(tokens, settings.sequence_length), labels)
    features = sst2.frozen_features(sst2.load_encoder(folder), 1, split)
    model = sst2.build_model(folder, 1, settings.head_factor)
    kernel = model.get_layer("logits").kernel
    kernel.assign(np.random.default_rng(0).normal(0.0, 0.05, kernel.shape))
    return model, features


def energy_left(model: keras.Model, x: Any, y: np.ndarray) -> float:
    """The energy of all per-example gradients after centring, over that before.

    Biases count as they are: their scale is chosen by the library, not by the data.
    """
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")

    @tf.function(autograph=False)
    def energies(batch: tuple) -> tuple[tf.Tensor, tf.Tensor]:
        def forward(part: tuple) -> tuple[tf.Tensor, tuple]:
            return loss(part[1], model(part[0], training=True)), ()

        before, after = [], []
        gradients = METHODS["bookkeeping"](model, forward, batch).gradients
        for parameter, gradient in zip(describe_parameters(model), gradients, strict=True):
            before.append(gradient.squared_norms())
            if parameter.bias is not None:
                centre = tf.reduce_mean(centrable(gradient).mean_inputs(), 0)
                gradient = centrable(gradient).centred(centre)
            after.append(gradient.squared_norms())
        return tf.reduce_sum(before), tf.reduce_sum(after)

    before, after = energies(tf.nest.map_structure(tf.constant, (x, y)))
    return float(after / before)


def centring(args: argparse.Namespace) -> dict[str, float]:
    """`energy_left` by network."""
    (x, y), _ = load_images("cifar10", args.data_dir)
    found = {}
    for activation in ("relu", "tanh"):
        keras.utils.set_random_seed(0)
        model = accuracy.cifar10_cnn(activation)
        head = model.layers[-1].kernel
        head.assign(keras.initializers.GlorotUniform(seed=1)(head.shape))
        found[f"CIFAR-10, CNN, {activation}"] = energy_left(model, x[:200], y[:200])
    model, features = transformer(args)
    found["SST-2, last layer of MiniLM"] = energy_left(model, *features)
    return found


def neurons(args: argparse.Namespace) -> dict[str, dict[str, float]]:
    """By kernel: shares of the gradient's energy in what is kept, and in its largest entries."""
    model, features = transformer(args)
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    gradients = gradient_matrices(model, whole_batch(*features), ["transformer_layer"])
    found = {}
    for path, (_, parameter) in chosen_matrices(model, list(gradients)).items():
        weights, gradient = np.abs(parameter.matrix().numpy()), gradients[path]
        if min(gradient.shape) == 1:
            continue
        squares = np.sort((gradient**2).ravel())[::-1]
        found[path] = {
            "largest tenth of the entries": float(squares[: squares.size // 10].sum()),
            "own rows": share(gradient, np.abs(gradient).sum(1), 0),
            "rows of large weights": share(gradient, weights.sum(1), 0),
            "own columns": share(gradient, np.abs(gradient).sum(0), 1),
            "columns of large weights": share(gradient, weights.sum(0), 1),
        }
        found[path]["largest tenth of the entries"] /= float(squares.sum())
    return found


def noise_table(records: list[dict[str, Any]]) -> list[list[str]]:
    """Rows of a table: one for each width."""
    rows = [["weights", "norm of the mean gradient", "of its noise", "noise over gradient"]]
    for record in records:
        gradient, added = record["gradient"], record["noise"]
        rows.append([f"{record['weights']:,}", f"{gradient:.3g}", f"{added:.3g}"])
        rows[-1].append(f"{added / gradient:.2f}")
    return rows


def neurons_table(record: dict[str, dict[str, float]]) -> list[list[str]]:
    """Rows of a table: one for each kernel, shares in %."""
    names = next(iter(record.values())).keys()
    rows = [["kernel", *names]]
    for path, shares in record.items():
        rows.append([f"`{path}`", *(f"{100 * value:.0f}" for value in shares.values())])
    return rows


def centring_table(record: dict[str, float]) -> list[list[str]]:
    """Rows of a table: one for each network."""
    rows = [["network", "energy left by centring"]]
    return rows + [[name, f"{100 * left:.0f} %"] for name, left in record.items()]


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=["noise", "neurons", "centring"])
    parser.add_argument("--quick", action="store_true", help="the two smallest networks only")
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--json", type=Path, help="the record; what it holds is not run again")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    parts = args.parts or (["noise"] if args.quick else ["noise", "neurons", "centring"])
    runs = Records(args.json, ORIGIN)
    if "noise" in parts:
        (x, y), _ = load_images("cifar10", args.data_dir)
        images = x[:IMAGES], y[:IMAGES]
        found = [
            runs.get({"part": "noise", "factor": factor}, functools.partial(noise, images, factor))
            for factor in (FACTORS[:2] if args.quick else FACTORS)
        ]
        print("\n".join(f"| {' | '.join(row)} |" for row in noise_table(found)))
    if "neurons" in parts:
        record = runs.get({"part": "neurons"}, lambda: {"shares": neurons(args)})
        print("\n".join(f"| {' | '.join(row)} |" for row in neurons_table(record["shares"])))
    if "centring" in parts:
        record = runs.get({"part": "centring"}, lambda: {"left": centring(args)})
        print("\n".join(f"| {' | '.join(row)} |" for row in centring_table(record["left"])))


if __name__ == "__main__":
    main()
