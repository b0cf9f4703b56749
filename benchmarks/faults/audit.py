"""Audits of the optimizers: lower bounds on epsilon from canaries, and membership inference.

python -m benchmarks.faults.audit canaries --json canaries.json
python -m benchmarks.faults.audit membership --data-dir DIR --json membership.json
python -m benchmarks.faults.audit membership --data-dir DIR --examples 1000 --networks 1

`canaries` trains on nothing but canaries with directions of their own, with the optimizers as they
are and with mechanisms that are broken on purpose.  `membership` attacks small networks that were
trained on few images of MNIST.  Both use the tools of `tf_lowrank_dp.auditing`.
"""

import argparse
import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import keras
import numpy as np

import tf_lowrank_dp as tfdp
from benchmarks.reproductions.mnist import load_mnist
from benchmarks.results.report import origin
from tests.auditing import canary_run
from tests.auditing.broken import BROKEN, SCORES
from tf_lowrank_dp.auditing import membership_inference, per_example_losses
from tf_lowrank_dp.auditing.intervals import lower_bound, upper_bound

ORIGIN = origin(__file__)

CORRECT = "as it is"
NON_PRIVATE = "without privacy"
ATTACKED = {
    **canary_run.OPTIMIZERS,
    "Sparse DP-SGD": tfdp.SparseDPSGDOptimizer,
    "DP-PowerSGD": tfdp.DPPowerSGDOptimizer,
}
"""Whose models `membership` attacks."""
NUM_CANARIES = {"GEP": 4000}
"""GEP forms the gradient of each example; the others have `--canaries`."""


def audit_canaries(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields one record for each mechanism, epsilon and optimizer."""
    sigmas = {
        epsilon: tfdp.calibrate_noise_multiplier(
            epsilon, args.delta, batch_size=1, num_examples=2, steps=canary_run.NUM_STEPS
        )
        for epsilon in {*args.epsilons, *args.broken_epsilons}
    }
    cases = [
        *itertools.product([CORRECT], args.epsilons, canary_run.OPTIMIZERS),
        *itertools.product(BROKEN, args.broken_epsilons, canary_run.OPTIMIZERS),
    ]
    for variant, epsilon, name in cases:
        num_canaries = min(args.canaries, NUM_CANARIES.get(name, args.canaries))
        broken = BROKEN[variant](num_canaries / 4) if variant in BROKEN else nullcontext()
        with broken:
            run = canary_run.train(
                name,
                num_canaries,
                delta=args.delta,
                noise_multiplier=sigmas[epsilon],
                seed=args.seed,
                microbatch_size=256 if name == "GEP" else None,
            )
        # Which score and how many guesses: fixed before any run.
        guesses = canary_run.certain_guesses(name, num_canaries) if variant in BROKEN else None
        result = run.audit(SCORES.get(variant, "total"), guesses)
        yield {
            "variant": variant,
            "target_epsilon": epsilon,
            "optimizer": name,
            "noise_multiplier": sigmas[epsilon],
            "reported_epsilon": run.epsilon,
            "lower_bound": result.epsilon,
            "num_canaries": num_canaries,
            "guesses": result.guesses,
            "num_correct": result.num_correct,
        }


def attack_members(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yields one record for each method, over several networks with data of their own."""
    (x, y), test = load_mnist(args.data_dir)
    x, y = np.concatenate([x, test[0]]), np.concatenate([y, test[1]])
    order = np.random.default_rng(args.seed).permutation(len(x))
    public, order = order[: args.public], order[args.public :]
    parts = np.reshape(order[: 2 * args.examples * args.networks], (args.networks, 2, -1))
    sigmas = {
        epsilon: tfdp.calibrate_noise_multiplier(
            epsilon, args.delta, args.private_batch_size, args.examples, args.private_epochs
        )
        for epsilon in args.epsilons
    }
    for name, epsilon in [(NON_PRIVATE, None), *itertools.product(ATTACKED, args.epsilons)]:
        sigma = sigmas.get(epsilon)
        records = [
            attack_one(args, name, sigma, number, (x[a], y[a]), (x[b], y[b]), x[public])
            for number, (a, b) in enumerate(parts)
        ]
        correct = sum(round(r["accuracy"] * r["num_measured"]) for r in records)
        measured = sum(r["num_measured"] for r in records)
        yield {
            "method": name,
            "target_epsilon": epsilon,
            "accuracy": correct / measured,
            "interval_95": [
                float(lower_bound(correct, measured, 0.975)),
                float(upper_bound(correct, measured, 0.975)),
            ],
            "num_measured": measured,
            "auc": mean_of("auc", records),
            "tpr_at_1_percent_fpr": mean_of("tpr_at_1_percent_fpr", records),
            "train_accuracy": mean_of("train_accuracy", records),
            "test_accuracy": mean_of("test_accuracy", records),
            "epsilon": records[0]["epsilon"],
            "networks": records,
        }


def mean_of(key: str, records: list[dict[str, Any]]) -> float:
    """Mean of one figure over records."""
    return float(np.mean([record[key] for record in records]))


def attack_one(args, name, sigma, number, members, others, public) -> dict[str, Any]:
    """Trains one network on `members` and attacks it; returns its JSON record."""
    keras.utils.set_random_seed(args.seed + number)
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(32, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    optimizer = keras.optimizers.Adam(args.lr)
    if name != NON_PRIVATE:
        tfdp.make_private(model)
        optimizer = private_optimizer(name, optimizer, sigma, public)
    model.compile(
        optimizer,
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        jit_compile=False,
    )
    epochs = args.epochs if name == NON_PRIVATE else args.private_epochs
    batch = args.batch_size if name == NON_PRIVATE else args.private_batch_size
    model.fit(*members, batch_size=batch, epochs=epochs, verbose=0)
    result = membership_inference(
        per_example_losses(model, *members, batch_size=1000),
        per_example_losses(model, *others, batch_size=1000),
        seed=args.seed + number,
    )
    return {
        "accuracy": result.accuracy,
        "interval_95": result.interval,
        "num_measured": result.num_measured,
        "auc": result.roc.auc,
        "tpr_at_1_percent_fpr": result.roc.true_positive_rate_at(0.01),
        "train_accuracy": model.evaluate(*members, verbose=0)[1],
        "test_accuracy": model.evaluate(*others, verbose=0)[1],
        "epsilon": None if name == NON_PRIVATE else tfdp.privacy_spent(model, args.delta),
    }


def private_optimizer(name, inner, sigma, public) -> keras.optimizers.Optimizer:
    """The optimizer of this name with this noise multiplier."""
    if name == "GEP":
        return tfdp.GEPOptimizer(
            inner,
            public_data=public,
            num_classes=10,
            num_bases=20,
            embedding_clip=1.0,
            residual_clip=0.4,
            noise_multiplier=sigma,
        )
    own = {"DP-SGD": {}, "Sparse DP-SGD": {"sparsity": 0.5}}.get(name, {"rank": 8})
    return ATTACKED[name](inner, l2_norm_clip=1.0, noise_multiplier=sigma, **own)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "--seed", type=int, default=0, help="of coins, splits and weights, not of the noise"
    )
    common.add_argument("--json", type=Path, help="write the record to this file")
    commands = parser.add_subparsers(required=True)
    canaries = commands.add_parser("canaries", parents=[common])
    canaries.set_defaults(records=audit_canaries)
    canaries.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    canaries.add_argument("--broken-epsilons", type=float, nargs="+", default=[3.0])
    canaries.add_argument("--delta", type=float, default=1e-6)
    canaries.add_argument("--canaries", type=int, default=12_000)
    members = commands.add_parser("membership", parents=[common])
    members.set_defaults(records=attack_members)
    members.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    members.add_argument("--networks", type=int, default=2)
    members.add_argument("--examples", type=int, default=10_000, help="members of each network")
    members.add_argument("--public", type=int, default=400, help="public images, for GEP")
    members.add_argument("--epochs", type=int, default=40, help="without privacy")
    members.add_argument("--batch-size", type=int, default=100, help="without privacy")
    members.add_argument("--private-epochs", type=int, default=10)
    members.add_argument("--private-batch-size", type=int, default=1000)
    members.add_argument("--lr", type=float, default=0.002)
    members.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 3.0, 8.0])
    members.add_argument("--delta", type=float, default=1e-5)
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    settings = {k: v for k, v in vars(args).items() if k not in ("records", "json", "data_dir")}
    start, records = time.perf_counter(), []
    for record in args.records(args):
        records.append({**record, "script": ORIGIN["script"]})
        print({k: v for k, v in record.items() if k != "networks"}, flush=True)
        report = {
            "settings": settings,
            "environment": ORIGIN["environment"],
            "runs": records,
            "wall_s": time.perf_counter() - start,
        }
        if args.json:
            args.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
