"""Connects this process with those that `TF_CONFIG` names."""

from __future__ import annotations

import json
import os

import tensorflow as tf

from tf_lowrank_dp.errors import UnsupportedModelError
from tf_lowrank_dp.workers.alone import ALONE, Workers
from tf_lowrank_dp.workers.connected import ConnectedWorkers

_JOBS = ("chief", "worker")
_joined: list[Workers] = []


def join_workers() -> Workers:
    """Connects this process with the others that train the same model: call it first of all.

    The processes are those that the environment variable `TF_CONFIG` names, as launchers of
    clusters and `python -m tf_lowrank_dp.launch` set it.  Without it, or where it names this one
    only, training is that of one process.  Blocks until all have started.

    Returns:
        What `make_private(model, workers=...)` takes.

    Raises:
        UnsupportedModelError: `TF_CONFIG` cannot be read or names processes of other kinds, or
            this one of several sees more than one GPU.
        RuntimeError: TensorFlow has been used before.

    Example:

    >>> import tf_lowrank_dp as tfdp
    >>> tfdp.join_workers()
    <worker 0 of 1>
    """
    if not _joined:
        tasks = cluster_tasks()
        _joined.append(ALONE if sum(tasks.values()) < 2 else _connect(tasks))
    return _joined[0]


def joined() -> Workers:
    """What `join_workers` has returned in this process, or one that is alone."""
    return _joined[0] if _joined else ALONE


def cluster_tasks() -> dict[str, int]:
    """Number of processes of each kind that `TF_CONFIG` names, but evaluators.

    Raises:
        UnsupportedModelError: it cannot be read.
    """
    config = os.environ.get("TF_CONFIG") or "{}"
    try:
        cluster = tf.train.ClusterSpec(json.loads(config).get("cluster", {}))
    except (AttributeError, TypeError, ValueError) as error:
        raise UnsupportedModelError(
            f"Expected TF_CONFIG to be JSON with a cluster. Received: TF_CONFIG that cannot be "
            f"read, {config!r}. Correct it, or start without it."
        ) from error
    return {job: cluster.num_tasks(job) for job in cluster.jobs if job != "evaluator"}


def _connect(tasks: dict[str, int]) -> ConnectedWorkers:
    task = json.loads(os.environ["TF_CONFIG"]).get("task", {})
    job, number = task.get("type"), task.get("index")
    known = set(tasks) <= set(_JOBS) and tasks.get("chief", 0) < 2
    if not known or job not in tasks or not (isinstance(number, int) and number < tasks[job]):
        raise UnsupportedModelError(
            "Expected TF_CONFIG to name workers, at most one chief, and which of them this process "
            f"is. Received: {tasks} and task={task}. Parameter servers are not supported; every "
            "process trains."
        )
    devices = tf.config.get_visible_devices("GPU")
    if len(devices) > 1:
        raise UnsupportedModelError(
            f"Expected one device for each of several workers. Received: {len(devices)} visible "
            "GPUs. Start one process for each, with CUDA_VISIBLE_DEVICES set, as `python -m "
            "tf_lowrank_dp.launch` does."
        )
    try:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
    except RuntimeError as error:
        raise RuntimeError(
            "Expected tfdp.join_workers() before any other use of TensorFlow. Received: a process "
            f"in which it is at work ({error}). Call join_workers first thing in the program."
        ) from error
    first = tasks.get("chief", 0) if job == "worker" else 0
    return ConnectedWorkers(strategy, sum(tasks.values()), first + number)
