"""The long scripts of this folder and the audits in minutes: whether each runs from end to end.

python -m benchmarks.reproductions.quick --data-dir DIR --public-images FILE
python -m benchmarks.reproductions.quick sst2 pate --data-dir DIR

Each is run by the arguments below, which show what makes it short: one seed, one learning rate, a
few steps. Nothing is recorded, and the accuracies that are printed say nothing.
"""

import argparse
import os
import subprocess
import sys
import time

_FEW = "--seeds 0 --steps 4"
_SENTENCES = "--train-examples 3000 --held-out 1000 --batch-size 64 --learning-rates 0.001"
_IMAGES = f"{_FEW} --epsilon 3 --activations relu"
QUICK = {
    "reproductions.accuracy": f"{_IMAGES} --tasks mnist cifar10-short",
    "reproductions.ranks": f"{_IMAGES} --tasks cifar10-short",
    "reproductions.resnet": f"{_IMAGES} --tasks cifar10-resnet8 --methods dpsgd rgp",
    "reproductions.gep_cifar10": f"{_IMAGES} --tasks cifar10-short --methods gep b-gep",
    "reproductions.gep_accuracy": f"table1 {_FEW} --epsilons 8 --learning-rates 0.5",
    "reproductions.mnist": "--examples 4000 --epochs 2",
    "reproductions.pate": "--quick",
    "reproductions.without_noise": "--quick",
    "reproductions.image_subspaces": "--quick",
    "reproductions.residual_weight": _FEW,
    "reproductions.first_gradients": "--quick",
    "reproductions.sst2": f"{_FEW} {_SENTENCES} --trained-layers 1 --methods dpsgd rgp-8 lsg-8-0.5",
    "reproductions.sst2_carriers": f"{_FEW} {_SENTENCES} --trained-layers 1 --methods rgp-8-random",
    "reproductions.sst2_subspaces": "--trained-layers 1",
    "reproductions.gep_sst2": f"{_FEW} {_SENTENCES} --epsilons 1",
    "faults.audit": "membership --networks 1 --examples 500 --epochs 2 --private-epochs 2 "
    "--private-batch-size 100 --epsilons 3",
}
"""The arguments of each script by its name."""

NEED_PUBLIC_IMAGES = (
    "reproductions.gep_cifar10",
    "reproductions.gep_accuracy",
    "reproductions.without_noise",
)


def command(name: str, public_images: str | None) -> list[str]:
    """The command that runs a script, with data where `TFDS_DATA_DIR` says."""
    images = ["--public-images", str(public_images)] if name in NEED_PUBLIC_IMAGES else []
    return [sys.executable, "-m", f"benchmarks.{name}", *QUICK[name].split(), *images]


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("scripts", nargs="*", help="by their last names; all where none is given")
    parser.add_argument("--public-images", help="needed by those of GEP with images")
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    args = parser.parse_args(argv)
    known = {name.rpartition(".")[2]: name for name in QUICK}
    for each in args.scripts:
        if each not in known:
            parser.error(f"scripts: expected {', '.join(known)}, received {each}")
    environment = os.environ | ({"TFDS_DATA_DIR": args.data_dir} if args.data_dir else {})
    failed = []
    for name in [known[each] for each in args.scripts] or QUICK:
        if name in NEED_PUBLIC_IMAGES and not args.public_images:
            print(f"{name}: left out, needs --public-images", flush=True)
            continue
        start = time.perf_counter()
        code = subprocess.run(command(name, args.public_images), env=environment).returncode
        print(f"{name}: exit {code} after {time.perf_counter() - start:.0f} s", flush=True)
        failed += [name] if code else []
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
