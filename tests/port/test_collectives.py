"""Contract of the port: what ends a collective operation, in a process of its own."""

import subprocess
import sys

from tests.workers.processes import ROOT, environment

WAITS = """
import threading, time
import tensorflow as tf
from tf_lowrank_dp._tensorflow import abort_collectives

def wait():
    try:
        tf.raw_ops.CollectiveReduceV2(
            input=[1.0], group_size=2, group_key=1, instance_key=1, ordering_token=[],
            merge_op="Add", final_op="Id", communication_hint="ring")
    except tf.errors.AbortedError as error:
        print("ended:", error.message)

thread = threading.Thread(target=wait, daemon=True)
thread.start()
thread.join(0.5)
print("waits:", thread.is_alive())
abort_collectives("worker 1 raised")
thread.join(30)
"""


def test_an_aborted_collective_ends_with_the_message_that_was_given():
    command = [sys.executable, "-c", WAITS]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True)
    waits, ended = done.stdout.splitlines()[:2]
    assert waits == "waits: True"
    assert ended.startswith("ended:") and ended.endswith("worker 1 raised")
