"""What each side does: trains an epoch whenever it is told to, and says how long that took.

Imports nothing but the standard library, as the sides run in different environments.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable

PRECISIONS = ("float32", "tf32", "bfloat16")


def arguments() -> argparse.Namespace:
    """What is trained, and on what, from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="of an epoch")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; JAX takes what it finds")
    parser.add_argument("--precision", choices=PRECISIONS, default="float32")
    return parser.parse_args()


def serve(
    prepare: Callable[[argparse.Namespace], Callable[[], object]],
    device_bytes: Callable[[], int | None] = lambda: None,
) -> None:
    """Answers each line of the standard input with an epoch and a line of JSON.

    Args:
        prepare: from the arguments to a function that trains one epoch, and waits for its end.
        device_bytes: gives the peak of the device's memory, if it has one of its own.
    """
    given = arguments()
    began = time.perf_counter()
    epoch = prepare(given)
    answer = sys.stdout
    sys.stdout = sys.stderr  # progress bars and the like
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        epoch()
        found = {
            "wall_s": time.perf_counter() - wall,
            "cpu_s": time.process_time() - cpu,
            "since_start_s": time.perf_counter() - began,
            "peak_mib": _peak_mib(),
            "device_bytes": device_bytes(),
        }
        print(json.dumps(found), file=answer, flush=True)


def _peak_mib() -> float:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return float("nan")
