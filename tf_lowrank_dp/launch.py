"""Starts several workers on this machine: `python -m tf_lowrank_dp.launch -n 8 train.py ...`.

Each is a process of the script with `TF_CONFIG` set, which `tfdp.join_workers()` reads, and with a
GPU of its own where there are some.  On clusters the scheduler does this instead (docs/scale.md).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

_GRACE = 15.0  # seconds in which the others say why they end


def launch(count: int, command: Sequence[str]) -> int:
    """Runs the workers until all have ended, and ends all if one fails.

    Args:
        count: number of processes.
        command: program and arguments; what it prints is shown behind the number of the worker.

    Returns:
        The exit status of the first that failed, or 0.

    Raises:
        ValueError: there are fewer GPUs than workers.
    """
    devices = visible_gpus()
    if devices and len(devices) < count:
        raise ValueError(
            f"Expected a GPU for each worker. Received: {count} workers and {len(devices)} GPUs. "
            f"Start {len(devices)}, or set CUDA_VISIBLE_DEVICES=-1 to train on the CPU."
        )
    cluster = {"worker": [f"127.0.0.1:{port}" for port in _free_ports(count)]}
    processes, readers = [], []
    for index in range(count):
        task = {"type": "worker", "index": index}
        environment = {**os.environ, "TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
        if devices:
            environment["CUDA_VISIBLE_DEVICES"] = devices[index]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        processes.append(process)
        readers.append(threading.Thread(target=_show, args=(process, index), daemon=True))
        readers[-1].start()
    try:
        status = _wait(processes)
    finally:
        _end(processes)
    for reader in readers:
        reader.join(timeout=5.0)
    return status


def visible_gpus() -> list[str]:
    """The GPUs that processes started from here may use; none where CUDA hides them."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [device for device in chosen.split(",") if device.strip() not in ("", "-1")]
    if shutil.which("nvidia-smi") is None:
        return []
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    lines = [line for line in listed.stdout.splitlines() if line.startswith("GPU ")]
    return [str(index) for index in range(len(lines))]


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def _show(process: subprocess.Popen, index: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        print(f"[{index}] {line}", end="", flush=True)


def _wait(processes: Sequence[subprocess.Popen]) -> int:
    """Until all have ended, or some time after one has failed."""
    failed, deadline = 0, float("inf")
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        failed = failed or next((p.returncode for p in processes if p.returncode), 0)
        if failed and deadline == float("inf"):
            deadline = time.monotonic() + _GRACE
        time.sleep(0.1)
    return failed or next((p.returncode for p in processes if p.returncode), 0)


def _end(processes: Sequence[subprocess.Popen]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)
        deadline = time.monotonic() + 5.0
        while any(p.poll() is None for p in processes) and time.monotonic() < deadline:
            time.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tf_lowrank_dp.launch", description=__doc__)
    parser.add_argument("-n", type=int, default=len(visible_gpus()) or 1, help="number of workers")
    parser.add_argument("script", help="a Python program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="of the program")
    given = parser.parse_args()
    return launch(given.n, [sys.executable, "-u", given.script, *given.arguments])


if __name__ == "__main__":
    sys.exit(main())
