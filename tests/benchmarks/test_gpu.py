"""Steps that are written out for a GPU compute, where they are run, what TensorFlow computes."""

import gzip
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.models import MODELS as BUILDERS
from benchmarks.speed.gpu.export import MODELS, Program, export
from benchmarks.speed.gpu.inputs import described, made

EXPANDED_BY_XLA = {"Qr", "ProductOfElementaryHouseholderReflectors"}


@pytest.fixture(scope="module", params=["dpsgd", "lsg"])
def written(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    program = Program("tiny", request.param, "tf32", 4)
    export([program], folder, checked=True)
    facts = json.loads((folder / f"{program.name}.json").read_text())
    text = gzip.decompress((folder / f"{program.name}.mlir.gz").read_bytes()).decode()
    return folder, program, facts, text


def test_a_program_holds_no_weights_and_calls_nothing_of_one_device(written):
    folder, program, _, text = written
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert sum(sizes) < 2**20  # weights are made where it runs
    assert max(map(len, text.splitlines())) < 20_000  # and the counters of the noise
    assert set(re.findall(r"custom_call @(\w+)", text)) <= EXPANDED_BY_XLA
    assert "mhlo." not in text.replace("stablehlo.", "")
    assert "bitcast" in text and "DEFAULT" in text  # traced as with tensor cores


def test_with_jax_alone_a_program_computes_what_the_step_computes(written):
    pytest.importorskip("jax", reason="JAX runs the programs; .ci/run installs it")
    folder, program, facts, _ = written
    command = [sys.executable, str(folder / "run.py"), program.name, "--repeat", "2"]
    line = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    record = json.loads(line)
    assert len(record["ms"]) == 2 and max(facts["expected"]) > 0.0
    assert record["difference"]["loss"] < 1e-5 and record["difference"]["gradients"] < 1e-5


def test_a_program_that_cannot_run_is_reported_and_the_others_go_on(written):
    pytest.importorskip("jax", reason="JAX runs the programs; .ci/run installs it")
    folder, program, facts, _ = written
    (folder / "broken.json").write_text(json.dumps(facts))
    command = [sys.executable, str(folder / "run.py"), "broken", program.name, "--repeat", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    broken, whole = map(json.loads, done.stdout.splitlines())
    assert "broken.mlir.gz" in broken["failed"] and whole["median_ms"] > 0.0


def test_every_model_to_be_exported_can_be_built():
    assert {builder for builder, _ in MODELS.values()} <= set(BUILDERS)


@pytest.mark.parametrize("value", [
    np.float32(3.0), np.zeros((2, 3), np.float32), np.arange(7), np.uint64([2**63 + 5]),
    np.array([True, True]),
])  # fmt: skip
def test_what_is_short_or_constant_is_made_as_it_was(value):
    again = made(json.loads(json.dumps(described(value))), seed=1)
    assert again.dtype == np.asarray(value).dtype
    np.testing.assert_array_equal(again, value)


def test_long_tensors_are_made_anew_of_the_same_kind():
    value = np.random.default_rng(0).normal(1.0, 0.1, (200, 50)).astype(np.float32)
    first, second = (made(described(value), seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert first.shape == value.shape and not np.array_equal(first, value)
    np.testing.assert_allclose([first.mean(), first.std()], [1.0, 0.1], atol=5e-3)
