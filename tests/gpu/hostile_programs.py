"""Writes what a step releases of hostile records as programs for a GPU, where `released.py` runs.

python -m tests.gpu.hostile_programs DIR        # here, where TensorFlow is
python DIR/released.py                          # there, where JAX is: worst norm over the clip
"""

import argparse
import contextlib
import gc
import gzip
import json
import pathlib
import shutil

import keras
import numpy as np
import tensorflow as tf

from benchmarks.speed.gpu.export import as_with_a_gpu, stablehlo
from tests.hostile.configurations import CONFIGURATIONS
from tests.hostile.harness import Harness
from tests.hostile.models import TOKENS
from tests.hostile.records import DIRECTED, FILLS, IDS, RECORDS, WEIGHTS, make_batch
from tf_lowrank_dp.mechanism.clipping import clip_factors
from tf_lowrank_dp.per_example.outer_product import OuterProduct

HERE = pathlib.Path(__file__).resolve().parent
DATA_SETS = 24
PAIRS = {
    "one position": (32, 1, 768, 768),
    "two columns": (200, 1, 768, 2),
    "few positions": (16, 8, 512, 512),
    "many positions": (4, 128, 768, 768),
    "narrow": (64, 16, 96, 80),
}
"""Names, and numbers of examples, positions, inputs and outputs: `(b, t, i, o)`."""
_AS_ON_A_CPU = {f"{name}, as on a CPU": name for name in PAIRS}  # what would leave without the care
NAMES = [
    name for name, case in CONFIGURATIONS.items()
    if case.arguments.get("gradient_method") != "reweight"
]  # fmt: skip


def batches_of(harness: Harness, generator: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Data sets of records of all kinds."""
    kinds = sorted(IDS) if harness.kind == TOKENS else sorted(FILLS | DIRECTED)
    made = []
    for _ in range(DATA_SETS):
        chosen = [
            (generator.choice(kinds), generator.choice(kinds), generator.choice(WEIGHTS), False)
            for _ in range(RECORDS)
        ]
        seed = generator.integers(2**32)
        shapes = harness.x_shape, harness.y_shape
        made.append(make_batch(harness.kind, chosen, seed, *shapes, harness.directions))
    return made


def step_program(name: str) -> tuple[tf.types.experimental.PolymorphicFunction, list, list[float]]:
    """Of a configuration: what it releases, its data sets, and the clips of its blocks."""
    harness = Harness(CONFIGURATIONS[name])
    harness.reset()

    def released(x: tf.Tensor, y: tf.Tensor, weights: tf.Tensor, presence: tf.Tensor) -> list:
        return harness._step({"x": x, "y": y, "sample_weight": weights}, presence)[0]

    made = [
        [batch["x"], batch["y"], batch["sample_weight"]]
        for batch in batches_of(harness, np.random.default_rng(0))
    ]
    clips = [*harness.mechanism.block_clips, harness.mechanism.l2_norm_clip]
    return tf.function(released, autograph=False, jit_compile=True), made, clips


def pair_program(shape: tuple[int, int, int, int]) -> tuple:
    """Of captured pairs as large as they are in models: the sum clipped to 1."""
    rows, positions, inputs, outputs = shape

    def released(x: tf.Tensor, d: tf.Tensor, presence: tf.Tensor) -> list:
        gradient = OuterProduct(x, d)
        return [tf.reshape(gradient.weighted_sum(clip_factors([gradient], presence, 1.0)), [-1])]

    generator = np.random.default_rng(1)
    kinds = ["normal", "equal positions", "cancelling", "mixed scales"]
    made = []
    with np.errstate(all="ignore"):
        for kind in kinds:
            x, d = (
                np.stack([FILLS[kind](generator, (positions, n)) for _ in range(rows)])
                for n in (inputs, outputs)
            )
            made.append([np.float32(x), np.float32(d)])
    # Half of what TensorFloat-32 drops is set in each operand: all are rounded alike.
    bits = np.float32(np.abs(made[0][1])).view(np.int32) & -(1 << 13)
    made.append([made[0][0], (bits | (1 << 12) + 1).view(np.float32)])
    return tf.function(released, autograph=False, jit_compile=True), made, [1.0, 1.0]


def main(argv: list[str] | None = None) -> None:
    """Writes the programs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--names", nargs="+", default=[*PAIRS, *_AS_ON_A_CPU, *NAMES])
    args = parser.parse_args(argv)
    args.folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "released.py", args.folder)
    for number, name in enumerate(args.names):
        pair = PAIRS.get(_AS_ON_A_CPU.get(name, name))
        with contextlib.nullcontext() if name in _AS_ON_A_CPU else as_with_a_gpu():
            function, batches, clips = pair_program(pair) if pair else step_program(name)
            rows = len(batches[0][0])
            inputs = [tf.constant(value) for value in [*batches[0], np.ones(rows, np.float32)]]
            text, captured = stablehlo(function, inputs, "tf32")
        arrays = {f"kept_{n}": tf.convert_to_tensor(v).numpy() for n, v in enumerate(captured)}
        for n, values in enumerate(zip(*batches, strict=True)):
            arrays[f"data_{n}"] = np.stack(values)
        stem = f"{number:02d}"
        (args.folder / f"{stem}.mlir.gz").write_bytes(gzip.compress(text.encode()))
        np.savez_compressed(args.folder / f"{stem}.npz", **arrays)
        (args.folder / f"{stem}.json").write_text(json.dumps({"name": name, "clips": clips}))
        print(name, f"{len(text) / 2**20:.1f} MiB of text", flush=True)
        keras.backend.clear_session()
        gc.collect()


if __name__ == "__main__":
    main()
