"""GEP for a linear classifier on pretrained features: appendix A of Yu et al. 2021, on SST-2.

python -m benchmarks.reproductions.gep_sst2 --data-dir DIR --json gep_sst2.json

The features are the mean token vectors of all-MiniLM-L6-v2 (see `sst2.py` for what it
needs), standardised with the moments of the public ones. As in the paper, 500 held-out examples
with random labels are the public data, and accuracy is that on the held-out rest; S2 is a fifth of
S1, the number of bases the root of the number of weights, the inner optimizer Adam.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np

import tf_lowrank_dp as tfdp
from benchmarks.reproductions.gep_accuracy import noise_multiplier
from benchmarks.reproductions.sst2 import (
    Features,
    Split,
    frozen_features,
    load_data,
    load_encoder,
    truncated,
    weights_dir,
)
from benchmarks.results.records import Records
from benchmarks.results.report import origin
from benchmarks.results.script_version import mark

ORIGIN = origin(__file__)

PUBLIC = 500
# Accuracies of Table 3 of the paper, on CIFAR-10, by method and epsilon.
PAPER = {
    "np": {0.0: 96.3},
    "dpsgd": {0.1: 88.2, 0.5: 91.1, 1.0: 93.2, 2.0: 93.4},
    "b-gep": {0.1: 91.0, 0.5: 92.9, 1.0: 93.1, 2.0: 93.2},
    "gep": {0.1: 90.9, 0.5: 93.5, 1.0: 94.3, 2.0: 94.8},
}


class Data(NamedTuple):
    """Standardised features `(n, 384)` and labels."""

    train: tuple[np.ndarray, np.ndarray]
    public: np.ndarray
    test: tuple[np.ndarray, np.ndarray]
    validation: tuple[np.ndarray, np.ndarray]


def load(args: argparse.Namespace) -> Data:
    """Returns the mean token vectors of all splits."""
    encoder = load_encoder(weights_dir(args.weights))
    train, held_out, validation = load_data(args).parts(args)
    splits = train, without(held_out, train), validation
    (x, y), (held_out, labels), (x_validation, y_validation) = (
        _means(frozen_features(encoder, 0, split)) for split in splits
    )
    mean, deviation = held_out[:PUBLIC].mean(0), held_out[:PUBLIC].std(0)
    x, held_out, x_validation = ((a - mean) / deviation for a in (x, held_out, x_validation))
    test = held_out[PUBLIC:], labels[PUBLIC:]
    return Data((x, y), held_out[:PUBLIC], test, (x_validation, y_validation))


def _means(split: Features) -> tuple[np.ndarray, np.ndarray]:
    mask = split.inputs["padding_mask"][..., None]
    return (split.inputs["features"] * mask).sum(1) / mask.sum(1), split.labels


def without(held_out: Split, train: Split) -> Split:
    """Drops phrases that are trained on: SST-2 repeats some, and none may be public as well."""
    known = {row.tobytes() for row in train.tokens}
    cut = truncated(held_out.tokens, train.tokens.shape[1])
    new = np.array([row.tobytes() not in known for row in cut])
    return Split(held_out.tokens[new], held_out.labels[new])


def build_optimizer(method: str, multiplier: float, rate: float, args, public, bases: int):
    """Returns the optimizer of a method around Adam."""
    inner, privacy = keras.optimizers.Adam(rate), {"noise_multiplier": multiplier}
    privacy["delta"] = args.delta
    if method == "dpsgd":
        return tfdp.DPSGDOptimizer(inner, l2_norm_clip=args.l2_norm_clip, **privacy)
    return tfdp.GEPOptimizer(
        inner,
        public_data=public,
        num_classes=2,
        num_bases=bases,
        embedding_clip=args.l2_norm_clip,
        residual_clip=args.l2_norm_clip / 5.0,
        residual=method == "gep",
        **privacy,
    )


def train(args, data: Data, method: str, epsilon: float, rate: float, seed: int) -> dict[str, Any]:
    """Trains one classifier and returns its record."""
    keras.backend.clear_session()
    keras.utils.set_random_seed(seed)
    x, y = data.train
    dense = keras.layers.Dense(2, kernel_initializer="zeros")
    model = keras.Sequential([keras.Input(x.shape[1:]), dense])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    start = time.perf_counter()
    schedule = {"batch_size": args.batch_size, "steps": args.steps}
    if method == "np":
        model.compile(keras.optimizers.Adam(rate), loss, metrics=["accuracy"])
        epochs = -(-args.steps * args.batch_size // len(y))
        model.fit(x, y, batch_size=args.batch_size, epochs=epochs, verbose=0)
    else:
        multiplier = noise_multiplier(epsilon, args.delta, num_examples=len(y), **schedule)
        bases = round(model.count_params() ** 0.5)
        optimizer = build_optimizer(method, multiplier, rate, args, data.public, bases)
        tfdp.make_private(model)
        model.compile(optimizer, loss, metrics=["accuracy"], jit_compile=False)
        model.fit(tfdp.PoissonSampler(x, y, **schedule), verbose=0)
    test, validation = (
        model.evaluate(*split, batch_size=1000, verbose=0, return_dict=True)["accuracy"]
        for split in (data.test, data.validation)
    )
    print(f"{method} {epsilon} {rate} {seed}: {test:.4f} {validation:.4f}", flush=True)
    return {
        "accuracy": test,
        "validation_accuracy": validation,
        "epsilon_spent": None if method == "np" else tfdp.privacy_spent(model),
        "wall_s": time.perf_counter() - start,
    }


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.1, 0.5, 1.0, 2.0])
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[0.01, 0.05, 0.1])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--l2-norm-clip", type=float, default=1.0, help="S1 of GEP")
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--sequence-length", type=int, default=32, help="of training sentences")
    parser.add_argument("--train-examples", type=int, help="the first ones only")
    parser.add_argument("--held-out", type=int, default=5000, help="not trained on")
    parser.add_argument("--weights", help="folder of the pretrained model, Hugging Face layout")
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--cache", type=Path, help=".npz file that keeps the tokenized data")
    parser.add_argument("--json", type=Path, help="record every run here; skip those it holds")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line and prints a Markdown table."""
    args = parse_args(argv)
    data, records = load(args), Records(args.json, ORIGIN)

    def run(method: str, epsilon: float, rate: float, seed: int) -> dict[str, Any]:
        names = ("delta", "l2_norm_clip", "batch_size", "steps", "sequence_length", "held_out")
        names += ("train_examples", "weights")
        settings = {name: getattr(args, name) for name in names}
        settings |= {"method": method, "epsilon": epsilon, "learning_rate": rate, "seed": seed}
        return records.get(settings, lambda: train(args, data, method, epsilon, rate, seed))

    print("| method | epsilon | learning rate | accuracy, % | lowest to highest | Table 3 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for method, paper in PAPER.items():
        for epsilon in args.epsilons if method != "np" else [0.0]:
            tried = {r: run(method, epsilon, r, args.seeds[0]) for r in args.learning_rates}
            best = max(tried, key=lambda rate: tried[rate]["validation_accuracy"])
            runs = [run(method, epsilon, best, seed) for seed in args.seeds]
            found = [100 * each["accuracy"] for each in runs]
            spread = f"{min(found):.1f} to {max(found):.1f}"
            cells = [method + mark(runs), epsilon or "", best, f"{np.mean(found):.1f}", spread]
            print(f"| {' | '.join(map(str, cells))} | {paper.get(epsilon, '')} |", flush=True)


if __name__ == "__main__":
    main()
