"""Why methods of low rank gain what they gain in `sst2.py`: noise saved, gradient kept.

python -m benchmarks.reproductions.sst2_subspaces --data-dir DIR

Takes the model of `sst2.py` before its first step, with a random classifier so that
gradients reach the encoder, and 512 held-out sentences. Prints what each method would release,
with how much noise, and which share of the gradient's energy `|G|_F^2` subspaces of each rank keep.
"""

import keras
import numpy as np

import tf_lowrank_dp as tfdp
from benchmarks.reproductions import sst2
from tf_lowrank_dp.diagnostics.batch_gradients import (
    chosen_matrices,
    gradient_matrices,
    whole_batch,
)

SENTENCES, RANKS, HEAD = 512, (2, 4, 8), "logits"


def kept(gradients: dict[str, np.ndarray], subspaces: dict[str, np.ndarray], rank: int) -> float:
    """Returns the share of all gradients' energy inside of the leading subspaces of matrices."""
    lost = sum(
        (tfdp.diagnostics.historical_projection_residual(g, subspaces[path], rank) ** 2)
        * np.sum(g**2)
        for path, g in gradients.items()
    )
    return 1.0 - lost / sum(np.sum(g**2) for g in gradients.values())


def main(argv: list[str] | None = None) -> None:
    """Runs the command line, which is that of `sst2.py`."""
    args = sst2.parse_args(argv)
    keras.utils.set_random_seed(0)
    folder = sst2.weights_dir(args.weights)
    tokens, labels = (array[:SENTENCES] for array in sst2.load_data(args).train)
    split = sst2.Split(sst2.truncated(tokens, args.sequence_length), labels)
    features = sst2.frozen_features(sst2.load_encoder(folder), args.trained_layers, split)
    model = sst2.build_model(folder, args.trained_layers, args.head_factor)
    budget = {"l2_norm_clip": args.l2_norm_clip, "epsilon": args.epsilon[0], "delta": args.delta}
    optimizers = {
        name: getattr(tfdp, method.optimizer)("sgd", **method.arguments, **budget)
        for name, method in sst2.METHODS.items()
        if method.private and not method.lora_rank and "history" not in name
    }
    print(tfdp.diagnostics.compare_releases(model, optimizers))

    kernel = model.get_layer(HEAD).kernel
    kernel.assign(np.random.default_rng(0).normal(0.0, 0.05, kernel.shape))
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    gradients = gradient_matrices(model, whole_batch(*features), ["transformer_layer"])
    weights = {
        path: parameter.matrix().numpy()
        for path, (_, parameter) in chosen_matrices(model, list(gradients)).items()
    }
    generator = np.random.default_rng(1)
    random = {path: generator.normal(size=g.shape) for path, g in gradients.items()}
    print("| rank | leading subspaces of the weights | random ones | the gradient's own |")
    print("| --- | --- | --- | --- |")
    for rank in RANKS:
        shares = [kept(gradients, found, rank) for found in (weights, random, gradients)]
        print(f"| {rank} | {' | '.join(f'{100 * share:.1f} %' for share in shares)} |")


if __name__ == "__main__":
    main()
