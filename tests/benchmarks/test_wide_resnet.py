"""Networks that are trained where there is no TensorFlow: programs, images and runs."""

import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks.reproductions.accuracy import HELD_OUT
from benchmarks.reproductions.wide_resnet.export import Training, described, write_programs
from benchmarks.reproductions.wide_resnet.images import read_images, write_images

EXAMPLES, TESTED, STEPS = 1000, 1000, 48
METHODS = ["dpsgd", "plain"]


def images_of_two_classes(count, seed):
    """Stripes that lie or stand: what a single convolution tells apart."""
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 2, count).astype(np.int32)
    lying = 160 * (np.arange(32) // 2 % 2)[:, None] + np.zeros((32, 32), np.int64)
    x = np.where(y[:, None, None] == 0, lying, lying.T)[..., None]
    return (x + generator.integers(0, 80, (count, 32, 32, 3))).astype(np.uint8), y


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide_resnet")
    training = Training("tiny", 1000.0, STEPS, 64, EXAMPLES, "tf32")
    write_programs(training, METHODS, folder)
    splits = [images_of_two_classes(HELD_OUT + EXAMPLES, 0), images_of_two_classes(TESTED, 1)]
    total = sum(len(y) for _, y in splits)
    for part, first in enumerate((0, 4096)):
        write_images(splits, first, min(first + 4096, total), folder / f"images{part}")
    return folder, splits


def test_a_program_holds_no_weights_and_no_key(written):
    folder, _ = written
    for method in METHODS:
        facts = json.loads((folder / f"tiny-{method}.json").read_text())
        kinds = [description["kind"] for description in facts["state"]]
        assert "secret" not in json.dumps(facts["takes"])
        assert ("secret" in kinds) == (method != "plain")
        assert len(gzip.decompress((folder / f"tiny-{method}.step.gz").read_bytes())) < 2**20


def test_a_copy_of_a_weight_begins_as_the_weight():
    """As RGP's history, the distance to the weights at its start, has to."""
    weight = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)
    others = [weight + 1.0, np.zeros((8, 8), np.float32), np.zeros((8, 8), np.float32)]
    found = described([tf.Variable(value) for value in (weight, *others, weight)])
    assert [description.get("like") for description in found] == [None] * 4 + [0]


def test_images_are_read_as_they_were(written):
    folder, splits = written
    x, y = read_images([folder / "images0", folder / "images1"])
    for read, parts in ((x, [x for x, _ in splits]), (y, [y for _, y in splits])):
        np.testing.assert_array_equal(read, np.concatenate(parts))
    with pytest.raises(ValueError, match="expected 7000 images.* received 4096"):
        read_images([folder / "images0"])


def test_with_jax_alone_all_methods_learn_and_nothing_is_run_twice(written):
    pytest.importorskip("jax", reason="JAX runs the programs; .ci/run installs it")
    folder, _ = written
    record = folder / "record.jsonl"
    images = [str(folder / "images0"), str(folder / "images1")]
    command = [sys.executable, str(folder / "train.py"), "tiny", "--images", *images]
    command += ["--rates", "0.5", "--seeds", "0", "1", "--json", str(record)]
    for _ in range(2):
        subprocess.run(command, check=True, capture_output=True, text=True)
    runs = [json.loads(line) for line in record.read_text().splitlines()]
    settings = [run["settings"] for run in runs]
    assert [(each["method"], each["seed"]) for each in settings] == [
        (method, seed) for seed in (0, 1) for method in METHODS
    ]
    for run in runs:
        assert run["held_out"] > 0.9 and run["test"] > 0.9, run
        if run["settings"]["method"] != "plain":
            assert abs(run["mean_rows"] - 64) < 5 * 8 / STEPS**0.5
