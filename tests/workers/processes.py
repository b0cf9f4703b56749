"""Starts the processes of a test on this machine, and collects what they found."""

import json
import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def environment():
    """For processes without a GPU that are in no cluster yet."""
    found = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
    found.pop("TF_CONFIG", None)
    return {**found, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}


def started(count, module, *arguments):
    """Processes of a module, connected by TF_CONFIG; one process has none."""
    cluster = {"worker": [f"127.0.0.1:{port}" for port in free_ports(count)]}
    processes = []
    for index in range(count):
        own = environment()
        if count > 1:
            task = {"type": "worker", "index": index}
            own["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        command = [sys.executable, "-m", module, *map(str, arguments)]
        processes.append(
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=own,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )
    return processes


def found_by(processes, folder, timeout=600):
    """What each process has pickled into `folder`, in their order."""
    outputs = [process.communicate(timeout=timeout)[0] for process in processes]
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-4000:]
    files = [Path(folder) / f"{len(processes)}.{index}.pickle" for index in range(len(processes))]
    return [pickle.loads(file.read_bytes()) for file in files]
