"""Kills private training with SIGKILL at random moments, resumes it, and checks what was kept.

A chain is one training: it is killed and started again several times and then runs to its end. A
trial is one kill and the start after it. Chains differ in how they save (`BackupAndRestore` each
epoch or every few steps, `ModelCheckpoint`), and in whether they have a ledger file, a target
epsilon, and several steps in an execution. Each process reports through a pipe what it draws,
saves and restores; the checks know nothing of the ledger but what is reported by it.

python -m benchmarks.faults.crash_trials --trials 200 --json crash_trials.json
"""

import argparse
import collections
import dataclasses
import hashlib
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import dp_accounting
import keras
import numpy as np
import tensorflow as tf

import tf_lowrank_dp as tfdp
from benchmarks.results.report import origin
from tf_lowrank_dp.mechanism.noise import NoiseGenerator
from tf_lowrank_dp.training import start_run as training_run

ORIGIN = origin(__file__)

EXAMPLES, BATCH, EPOCHS = 64, 8, 8
STEPS_PER_EPOCH = EXAMPLES // BATCH
DELTA, TARGET, NOISE_MULTIPLIER = 1e-3, 4.0, 1.5
KILLS_PER_CHAIN = 5
PATIENCE_S = 1800.0  # a process that takes longer hangs


@dataclasses.dataclass(frozen=True)
class Setting:
    """How one chain trains and saves.

    Attributes:
        saving: "each epoch" or "every 3 steps" with `BackupAndRestore`, or "checkpoints".
        has_file: whether steps are noted in a ledger file before they are taken.
        has_target: whether the noise is calibrated to `TARGET`.
        steps_per_execution: of `compile`.
    """

    saving: str
    has_file: bool
    has_target: bool
    steps_per_execution: int

    @classmethod
    def drawn(cls, generator: random.Random) -> "Setting":
        """A random one."""
        return cls(
            saving=generator.choice(["each epoch", "every 3 steps", "checkpoints"]),
            has_file=generator.random() < 0.5,
            has_target=generator.random() < 0.3,
            steps_per_execution=generator.choice([1, 1, 3]),
        )


# What happens in the process that is killed.


def train(folder: Path, setting: Setting, report) -> None:
    """One start of the training script; resumes what it finds in `folder`."""
    _report_noise(report)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(EXAMPLES, 8)).astype("float32")
    y = generator.integers(0, 3, EXAMPLES)
    ledger_path = folder / "ledger.jsonl" if setting.has_file else None
    checkpoint = folder / "model.keras"
    if checkpoint.exists():
        model = keras.models.load_model(checkpoint)
        tfdp.make_private(model, ledger_path=ledger_path)
    else:
        dense = keras.layers.Dense
        model = keras.Sequential([keras.Input((8,)), dense(8, activation="tanh"), dense(3)])
        tfdp.make_private(model, ledger_path=ledger_path)
        budget = {"noise_multiplier": NOISE_MULTIPLIER}
        if setting.has_target:
            budget = {"epsilon": TARGET, "planned_steps": EPOCHS * STEPS_PER_EPOCH}
        model.compile(
            tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, delta=DELTA, accountant="rdp", **budget),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile=False,
            steps_per_execution=setting.steps_per_execution,
        )
    if setting.saving == "checkpoints":
        callback = keras.callbacks.ModelCheckpoint(checkpoint, save_freq=3)
    else:
        save_freq = "epoch" if setting.saving == "each epoch" else 3
        callback = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=save_freq)
    _report_start(model, report)
    _report_saving(model, report)
    try:
        model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[callback])
        report("end", epsilon=tfdp.privacy_spent(model))
    except tfdp.PrivacyBudgetExceededError:
        report("budget", epsilon=tfdp.privacy_spent(model))


def _report_noise(report) -> None:
    """Tells of each draw of noise before it can be used."""
    draw = NoiseGenerator.normal

    def normal(self, shapes):
        tensors = draw(self, shapes)

        def tell(*arrays):
            report("step", noise=_digest(arrays))
            return arrays

        told = tf.numpy_function(tell, tensors, [tensor.dtype for tensor in tensors])
        return [tf.ensure_shape(a, b.shape) for a, b in zip(told, tensors, strict=True)]

    NoiseGenerator.normal = normal


def _report_start(model: keras.Model, report) -> None:
    """Tells what is known when the noise is chosen, and what is chosen."""
    choose = training_run._noise_multiplier

    def noise_multiplier(optimizer, sampling, steps, ledger):
        known = {
            "ledger_steps": ledger.num_steps,
            "epsilon": ledger.epsilon(DELTA, accountant="rdp"),
        }
        chosen = choose(optimizer, sampling, steps, ledger)
        report("start", sigma=chosen[0], **known, **_contents(model))
        return chosen

    training_run._noise_multiplier = noise_multiplier


def _report_saving(model: keras.Model, report) -> None:
    """Tells before and after each time the model is saved."""

    def telling(save):
        def save_and_tell(*args, **kwargs):
            report("saving", **_contents(model))
            save(*args, **kwargs)
            report("saved")

        return save_and_tell

    for name in ("save", "save_weights"):
        object.__setattr__(model, name, telling(getattr(model, name)))


def _contents(model: keras.Model) -> dict:
    """What a checkpoint has to bring back."""
    return {
        "weights": _digest(model.get_weights()),
        "slots": _digest(map(keras.ops.convert_to_numpy, model.optimizer.variables)),
    }


def _digest(arrays) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


# What happens in the process that kills and checks.


def fork(folder: Path, setting: Setting) -> tuple[int, int]:
    """Starts a training process; returns its id and the pipe that it reports to.

    This process has imported TensorFlow and never run it, so a fork of it can start it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        return child, reader

    def report(kind, **content):
        os.write(writer, json.dumps({"kind": kind, **content}).encode() + b"\n")

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    status = 0
    try:
        train(folder, setting, report)
    except BaseException:
        status = 1
        report("error", text=traceback.format_exc()[-3000:])
    os._exit(status)


def watch(child: int, reader: int, moment) -> tuple[list[dict], bool]:
    """Reads the reports of a process, kills it at `moment`; returns them, and if it was killed.

    Args:
        child: the process.
        reader: its pipe.
        moment: takes the reports so far and the seconds since the start, returns for how many more
            seconds the process may live, or None for the time being.
    """
    start, rest, reports, killed = time.monotonic(), b"", [], False
    while True:
        if select.select([reader], [], [], 0.02)[0]:
            data = os.read(reader, 1 << 16)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            reports += [json.loads(line) for line in lines]
        elapsed = time.monotonic() - start
        if elapsed > PATIENCE_S:
            reports.append({"kind": "error", "text": f"hangs: {reports[-3:]}"})
        left = 0.0 if elapsed > PATIENCE_S else moment(reports, elapsed)
        if left is not None and not killed:
            time.sleep(left)
            os.kill(child, signal.SIGKILL)
            killed = True
    os.close(reader)
    status = os.waitpid(child, 0)[1]
    return reports, os.WIFSIGNALED(status)


def drawn_moment(generator: random.Random):
    """A random moment: after some steps, while the n-th checkpoint is written, or at any time."""
    kind = generator.choices(["step", "saving", "time"], [5, 4, 1])[0]
    if kind == "time":
        latest = generator.uniform(0.0, 6.0)
        return lambda reports, elapsed: 0.0 if elapsed >= latest else None
    count = generator.randint(1, 20 if kind == "step" else 4)
    delay = generator.uniform(0.0, 0.04 if kind == "step" else 0.015)

    def moment(reports, elapsed):
        seen = sum(report["kind"] == kind for report in reports)
        return delay if seen >= count else None

    return moment


def never(reports, elapsed):
    """The moment that does not come."""


class Chain:
    """The checks of one chain: what it took and saved so far, and what resuming has to show."""

    def __init__(self, setting: Setting, noise_seen: set):
        self.setting = setting
        self.failures: list[str] = []
        self.taken = collections.Counter()  # steps by sigma, of all processes
        self._noise_seen = noise_seen
        self._saved: list[dict] = []  # the last complete checkpoint and later attempts

    def check(self, reports: list[dict]) -> None:
        """Checks the reports of one process."""
        own, sigma = collections.Counter(), None
        for report in reports:
            kind = report["kind"]
            if kind == "start":
                own, sigma = self._check_start(report), report["sigma"]
            elif kind == "step":
                own[sigma] += 1
                self.taken[sigma] += 1
                self._expect(report["noise"] not in self._noise_seen, "noise is used twice")
                self._noise_seen.add(report["noise"])
            elif kind == "saving":
                self._saved.append({**report, "taken": own.copy(), "sigma": sigma})
            elif kind == "saved":
                self._saved = [{**self._saved[-1], "complete": True}]
            elif kind in ("end", "budget"):
                counted = self.taken if self.setting.has_file else own
                self._expect(report["epsilon"] >= epsilon_of(counted), "epsilon is too low at last")
                within = not self.setting.has_target or report["epsilon"] <= TARGET
                self._expect(within, f"epsilon {report['epsilon']} exceeds its target")
            elif kind == "error":
                self._expect(False, report["text"])

    def _check_start(self, report: dict) -> collections.Counter:
        """Checks what was restored before the noise was chosen; returns the steps it stands for."""
        found = [s for s in self._saved if s["weights"] == report["weights"]]
        self._expect(found or not self._is_complete, "the weights are of no checkpoint")
        restored = found[-1] if found else None
        taken = collections.Counter()
        if restored:
            taken = restored["taken"].copy()
            self._expect(restored["slots"] == report["slots"], "the inner optimizer starts anew")
            self._expect(restored["sigma"] == report["sigma"], "sigma has changed")
        counted = self.taken if self.setting.has_file else taken
        self._expect(report["ledger_steps"] >= sum(counted.values()), "steps are lost")
        self._expect(report["epsilon"] >= epsilon_of(counted), "epsilon is too low")
        return taken

    @property
    def _is_complete(self) -> bool:
        """Whether a checkpoint was completed."""
        return any("complete" in s for s in self._saved)

    def _expect(self, holds, failure: str) -> None:
        if not holds:
            self.failures.append(f"{self.setting}: {failure}")


def epsilon_of(taken: collections.Counter) -> float:
    """Epsilon of steps that were taken, composed by hand."""
    accountant = dp_accounting.rdp.RdpAccountant()
    for sigma, count in taken.items():
        gaussian = dp_accounting.GaussianDpEvent(sigma)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(BATCH / EXAMPLES, gaussian), count)
    return accountant.get_epsilon(DELTA) * (1 - 1e-9) if taken else 0.0


def run_trials(trials: int, seed: int, tell) -> dict:
    """Runs kills and resumes; returns counts and failures.

    Args:
        trials: how many.
        seed: of the settings and the moments; those of the operating system are its own.
        tell: is called with the record after each chain.
    """
    generator, noise_seen, failures = random.Random(seed), set(), []
    counts = collections.Counter()
    start = time.monotonic()
    while counts["trials"] < trials:
        setting = Setting.drawn(generator)
        chain = Chain(setting, noise_seen)
        folder = Path(tempfile.mkdtemp(prefix="crash_trials_"))
        kills, killed = min(KILLS_PER_CHAIN, trials - counts["trials"]), True
        for kill in range(kills + 1):
            if not killed:
                break
            moment = drawn_moment(generator) if kill < kills else never
            reports, killed = watch(*fork(folder, setting), moment)
            chain.check(reports)
            kinds = collections.Counter(report["kind"] for report in reports)
            counts["trials"] += killed
            counts["starts"] += 1
            counts["steps"] += kinds["step"]
            counts["checkpoints"] += kinds["saved"]
            counts["killed while saving"] += killed and kinds["saving"] > kinds["saved"]
            counts["killed before the first step"] += killed and not kinds["step"]
            counts["with a ledger file"] += killed and setting.has_file
        shutil.rmtree(folder)
        failures += chain.failures
        record = {
            **counts,
            "draws of noise, all different": len(noise_seen),
            "seconds": round(time.monotonic() - start),
            "failures": failures,
        }
        tell(record)
    return record


def main(argv: list[str] | None = None) -> int:
    """Runs the command line; 1 if a check failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the record to this file")
    args = parser.parse_args(argv)

    def tell(record):
        print(f"{record['trials']} trials, {len(record['failures'])} failures", flush=True)
        if args.json:
            args.json.write_text(json.dumps({**ORIGIN, **record}, indent=2) + "\n")

    record = run_trials(args.trials, args.seed, tell)
    for name, value in record.items():
        print(f"{name}: {value}")
    return 1 if record["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
