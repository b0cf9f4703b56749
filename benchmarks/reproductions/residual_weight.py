"""What RGP's residual weight is for: the ablation of Yu et al. 2021, appendix C.2, on images.

python -m benchmarks.reproductions.residual_weight --data-dir DIR --json residual_weight.json

RGP splits a kernel into its best approximation of low rank, `L R`, and the rest, the residual
weight. The rest gets no gradient, but takes part in the forward pass. The ablation leaves it out:
gradients are those of a network whose kernels are `L R`, and update the whole kernels. Both are
trained without clipping and noise, so that nothing else makes a difference. The appendix takes `L`
and `R` from the history of the weights; here they come from the weights, of which `L R` then is the
best approximation.  The networks are those of `accuracy`; each run is one line of the record.
"""

import argparse
import functools
import math
import os
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from benchmarks.reproductions.accuracy import cifar10_cnn, mnist_mlp
from benchmarks.reproductions.mnist import Split, load_images
from benchmarks.results.records import Records
from benchmarks.results.report import origin

ORIGIN = origin(__file__)
NETWORKS: dict[str, Callable[[str], keras.Model]] = {"mnist": mnist_mlp, "cifar10": cifar10_cnn}


def low_rank_part(kernel: np.ndarray, rank: int) -> np.ndarray:
    """Returns `L R`, the best approximation of the kernel, as a matrix, with this rank."""
    u, s, v = np.linalg.svd(kernel.reshape(-1, kernel.shape[-1]), full_matrices=False)
    return ((u[:, :rank] * s[:rank]) @ v[:rank]).reshape(kernel.shape)


def train(
    args: argparse.Namespace, data: tuple[Split, Split], keep_residual: bool, seed: int
) -> dict[str, float]:
    """Returns the test accuracy of a network trained with or without the residual weights."""
    import tf_lowrank_dp as tfdp

    (x, y), (x_test, y_test) = data
    keras.utils.set_random_seed(seed)
    model = tfdp.make_private(NETWORKS[args.data]("relu"))
    optimizer = tfdp.RGPOptimizer(
        keras.optimizers.SGD(args.learning_rate, momentum=0.9),
        rank=args.rank,
        carriers_from="weights",
        l2_norm_clip=math.inf,
        noise_multiplier=0.0,
    )
    model.compile(optimizer)
    sampler = tfdp.PoissonSampler(x, y, batch_size=args.batch_size, steps=args.steps)
    trainer = tfdp.PrivateTrainer(model, sampler)
    kernels = [layer.kernel for layer in model.layers[:-1] if hasattr(layer, "kernel")]

    def losses(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tuple]:
        logits = model(batch["x"], training=True)
        loss = keras.losses.sparse_categorical_crossentropy(batch["y"], logits, from_logits=True)
        return loss, ()

    @tf.function(reduce_retracing=True)
    def gradients_of(batch: dict[str, tf.Tensor]) -> list[tf.Tensor]:
        return trainer.gradients(losses, batch)

    for batch in sampler:
        whole = [kernel.numpy() for kernel in kernels]
        if not keep_residual:
            for kernel, value in zip(kernels, whole, strict=True):
                kernel.assign(low_rank_part(value, args.rank))
        gradients = gradients_of(batch)
        for kernel, value in zip(kernels, whole, strict=True):
            kernel.assign(value)
        trainer.apply(gradients)
    predicted = np.argmax(model.predict(x_test, batch_size=1000, verbose=0), axis=-1)
    return {"accuracy": float(np.mean(predicted == y_test))}


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=NETWORKS, default="mnist")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--steps", type=int, default=240)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the weights")
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--json", type=Path, help="the record, to which runs are added")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    data = load_images(args.data, args.data_dir)
    records = Records(args.json, ORIGIN)
    names = ("data", "rank", "batch_size", "steps", "learning_rate")
    common = {name: getattr(args, name) for name in names}
    for name, keep_residual in (("with residual weight", True), ("without", False)):
        found = []
        for seed in args.seeds:
            run = functools.partial(train, args, data, keep_residual, seed)
            settings = common | {"residual_weight": keep_residual, "seed": seed}
            found.append(records.get(settings, run)["accuracy"])
        print(f"{name:22s}", " ".join(f"{100 * a:.1f} %" for a in found), flush=True)


if __name__ == "__main__":
    main()
