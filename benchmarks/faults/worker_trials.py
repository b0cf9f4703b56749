"""Kills one of several workers with SIGKILL at random moments, starts all again, and checks.

As `crash_trials`, whose checks it uses: a chain is one training of a few workers on this machine,
whose chief or another worker is killed in mid-step or while the chief saves, several times. Checked
are: the others end by themselves, soon and with a sentence; every start goes on where the chief
has saved; the ledger is never below what was released; no noise is drawn twice; and at last all
workers have the same weights.

python -m benchmarks.faults.worker_trials --trials 40 --json worker_trials.json
python -m benchmarks.faults.worker_trials --trials 2
"""

import argparse
import json
import os
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path

import keras
import numpy as np

import tf_lowrank_dp as tfdp
from benchmarks.faults import crash_trials
from benchmarks.faults.crash_trials import (
    BATCH,
    DELTA,
    EPOCHS,
    EXAMPLES,
    STEPS_PER_EPOCH,
    Chain,
    Setting,
)
from benchmarks.results.report import origin

ORIGIN = origin(__file__)

SOON_S = 30.0
PATIENCE_S = 600.0
KILLS_PER_CHAIN = 4


def train(folder: Path, setting: Setting, report) -> None:
    """One start of the training script by one of the workers that `TF_CONFIG` names."""
    workers = tfdp.join_workers()
    if workers.is_chief:
        crash_trials._report_noise(report)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(EXAMPLES, 8)).astype("float32")
    y = generator.integers(0, 3, EXAMPLES)
    dense = keras.layers.Dense
    model = keras.Sequential([keras.Input((8,)), dense(8, activation="tanh"), dense(3)])
    tfdp.make_private(model, ledger_path=folder / "ledger.jsonl", workers=workers)
    budget = {"noise_multiplier": crash_trials.NOISE_MULTIPLIER}
    if setting.has_target:
        budget = {"epsilon": crash_trials.TARGET, "planned_steps": EPOCHS * STEPS_PER_EPOCH}
    model.compile(
        tfdp.DPSGDOptimizer("adam", l2_norm_clip=1.0, delta=DELTA, accountant="rdp", **budget),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        jit_compile=False,
        steps_per_execution=setting.steps_per_execution,
    )
    save_freq = "epoch" if setting.saving == "each epoch" else 3
    callback = keras.callbacks.BackupAndRestore(folder / "backup", save_freq=save_freq)
    if workers.is_chief:
        crash_trials._report_start(model, report)
        crash_trials._report_saving(model, report)
    kind = "end"
    try:
        model.fit(x, y, batch_size=BATCH, epochs=EPOCHS, verbose=0, callbacks=[callback])
    except tfdp.PrivacyBudgetExceededError:
        kind = "budget"
    weights = crash_trials._contents(model)["weights"]
    report(kind, epsilon=tfdp.privacy_spent(model), own=weights)


def start(folder: Path, setting: Setting, count: int) -> list[tuple[int, int]]:
    """Forks the workers of a process that has imported TensorFlow and never run it.

    Returns:
        Of each worker its process and the pipe that it reports to.
    """
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    started = []
    for index in range(count):
        reader, writer = os.pipe()
        child = os.fork()
        if child:
            os.close(writer)
            started.append((child, reader))
            continue
        task = {"type": "worker", "index": index}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": addresses}, "task": task})
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())

        def report(kind, writer=writer, **content):
            os.write(writer, json.dumps({"kind": kind, **content}).encode() + b"\n")

        status = 0
        try:
            train(folder, setting, report)
        except tfdp.WorkerLostError as error:
            status = 1
            report("lost", text=str(error))
        except BaseException:
            status = 1
            report("error", text=traceback.format_exc()[-3000:])
        os._exit(status)
    return started


def watch(started, victim: int, moment) -> tuple[list[list[dict]], float | None]:
    """Reads the reports of all workers, kills one at `moment`, and waits until all have ended.

    Args:
        started: processes and pipes.
        victim: which worker is killed.
        moment: of `crash_trials`, asked with the reports of the chief once all have joined: the
            launcher, or the cluster, ends those that wait for one that never came.

    Returns:
        The reports by worker, and the seconds from the kill to the last end; None without a kill.
    """
    reports = [[] for _ in started]
    rests, open_pipes = [b""] * len(started), {pipe: i for i, (_, pipe) in enumerate(started)}
    begun, killed_at = time.monotonic(), None
    while open_pipes:
        for pipe in select.select(list(open_pipes), [], [], 0.02)[0]:
            index, data = open_pipes[pipe], os.read(pipe, 1 << 16)
            if not data:
                del open_pipes[pipe]
                os.close(pipe)
            *lines, rests[index] = (rests[index] + data).split(b"\n")
            reports[index] += [json.loads(line) for line in lines]
        elapsed = time.monotonic() - begun
        joined = any(report["kind"] == "start" for report in reports[0])
        left = moment(reports[0], elapsed) if joined and killed_at is None else None
        if left is not None and victim in open_pipes.values():
            time.sleep(left)
            os.kill(started[victim][0], signal.SIGKILL)
            killed_at = time.monotonic()
        if elapsed > PATIENCE_S:
            reports[0].append({"kind": "error", "text": f"hangs: {[r[-2:] for r in reports]}"})
            for index in open_pipes.values():
                os.kill(started[index][0], signal.SIGKILL)
            break
    ended = time.monotonic()
    for child, _ in started:
        os.waitpid(child, 0)
    return reports, None if killed_at is None else ended - killed_at


def run_trials(trials: int, seed: int, count: int, tell) -> dict:
    """Runs kills and starts; returns counts and failures."""
    generator, noise_seen, failures = random.Random(seed), set(), []
    record = {"trials": 0, "chains": 0, "killed chiefs": 0, "saving": 0, "steps": 0}
    seconds, sentences = [], set()
    while record["trials"] < trials:
        setting = Setting.drawn(generator)
        saving = "each epoch" if setting.saving == "each epoch" else "every 3 steps"
        setting = Setting(saving, True, setting.has_target, setting.steps_per_execution)
        chain, folder = Chain(setting, noise_seen), Path(tempfile.mkdtemp())
        kills = 0
        while True:
            victim = generator.randrange(count)
            is_last = kills == KILLS_PER_CHAIN or record["trials"] == trials
            moment = crash_trials.never if is_last else crash_trials.drawn_moment(generator)
            reports, took = watch(start(folder, setting, count), victim, moment)
            chain.check(reports[0])
            for own in reports[1:]:
                chain.failures += [report["text"] for report in own if report["kind"] == "error"]
            sentences |= {r["text"] for own in reports for r in own if r["kind"] == "lost"}
            if took is None:
                break
            kills += 1
            record["trials"] += 1
            record["killed chiefs"] += victim == 0
            record["saving"] += bool(reports[0]) and reports[0][-1]["kind"] == "saving"
            seconds.append(took)
            if took > SOON_S:
                chain.failures.append(f"the others ended after {took:.0f} s")
        last = [own[-1]["own"] for own in reports if own and "own" in own[-1]]
        if len(last) != count or len(set(last)) != 1:
            chain.failures.append(f"at last the workers differ: {[own[-1:] for own in reports]}")
        failures += chain.failures
        record["chains"] += 1
        record["steps"] += sum(chain.taken.values())
        record["noise"] = len(noise_seen)
        shutil.rmtree(folder)
        record.update({"failures": failures, "slowest_end_s": max(seconds, default=0.0)})
        record["sentences"] = sorted(sentences)
        tell(record)
    return record


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where the record is written")
    arguments = parser.parse_args()

    def tell(record: dict) -> None:
        print({key: value for key, value in record.items() if key != "sentences"}, flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps({**ORIGIN, **record}, indent=1))

    record = run_trials(arguments.trials, arguments.seed, arguments.workers, tell)
    return len(record["failures"]) > 0


if __name__ == "__main__":
    sys.exit(main())
