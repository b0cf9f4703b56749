"""Processes of a test on this machine."""

import fcntl
import json
import os
import pickle
import socket
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment():
    """For a process without a GPU that is in no cluster."""
    found = {**os.environ, "CUDA_VISIBLE_DEVICES": "-1", "PYTHONPATH": str(ROOT)}
    found.pop("TF_CONFIG", None)
    return {**found, "TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1"}


def once(tmp_path_factory, name, make):
    """What `make(folder)` returns, called by the first of pytest's processes that asks for it."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    result = shared / f"{name}.pickle"
    with (shared / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
        if not result.exists():
            result.write_bytes(pickle.dumps(make(tmp_path_factory.mktemp(name))))
    return pickle.loads(result.read_bytes())


def fork_workers(count, work):
    """Runs `work()` in so many processes that TF_CONFIG connects; returns when all have ended.

    For a process that has imported TensorFlow, which takes seconds, and has never run it.
    """
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    cluster = {"worker": [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]}
    for each in sockets:
        each.close()
    children = []
    for index in range(count):
        child = os.fork()
        if child:
            children.append(child)
            continue
        task = {"type": "worker", "index": index}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    for child in children:
        _, status = os.waitpid(child, 0)
        assert status == 0, f"a worker of {count} failed"
