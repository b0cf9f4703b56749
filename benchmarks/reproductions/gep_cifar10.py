"""GEP and B-GEP in `accuracy`'s comparison on CIFAR-10: Table 1 of Yu et al. 2021, on a small CNN.

python -m benchmarks.reproductions.gep_cifar10 --public-images FILE --tasks cifar10-short \
    --activations relu --epsilon 3 --methods gep b-gep --json accuracy.jsonl

The public images are those of `gep_accuracy`; all else is `accuracy`'s: command line, tuning and
record.  Tasks of `resnet` can be chosen too.  The two clips, the number of bases and how often
these are found anew are those with which `gep_accuracy` trains.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np

from benchmarks.optimizers import OPTIMIZERS
from benchmarks.reproductions import accuracy, resnet

SIDE = 32


def gep(images: np.ndarray, residual: bool) -> Callable[..., keras.optimizers.Optimizer]:
    """Returns a factory of GEP, or of B-GEP without the residual."""

    def factory(
        inner: keras.optimizers.Optimizer, l2_norm_clip: float, centering: bool, **privacy: Any
    ) -> keras.optimizers.Optimizer:
        import tf_lowrank_dp as tfdp

        assert not centering, "GEP is compared as it is"
        return tfdp.GEPOptimizer(
            inner,
            public_data=images,
            public_labels="random",
            num_classes=10,
            num_bases=500,
            embedding_clip=l2_norm_clip,
            residual_clip=0.4 * l2_norm_clip,
            residual=residual,
            refresh_every=20,
            **privacy,
        )

    return factory


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--public-images", type=Path, required=True)
    given, others = parser.parse_known_args()
    images = np.load(given.public_images)["images"]
    top, left = (images.shape[1] - SIDE) // 2, (images.shape[2] - SIDE) // 2
    images = (images[:, top : top + SIDE, left : left + SIDE] / 255.0).astype("float32")
    for name, residual in (("gep", True), ("b-gep", False)):
        OPTIMIZERS[name] = gep(images, residual)
        accuracy.METHODS[name] = accuracy.Method(name, centering=False)
    accuracy.TASKS.update(resnet.TASKS)
    accuracy.main(others)


if __name__ == "__main__":
    main()
