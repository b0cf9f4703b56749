"""What each side does: trains an epoch whenever it is told to, and says how long that took.

Imports nothing but the standard library, as the sides run in different environments.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable


def arguments() -> argparse.Namespace:
    """`--model --mode --batch --steps` of the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--mode", required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="of an epoch")
    return parser.parse_args()


def serve(prepare: Callable[[argparse.Namespace], Callable[[], object]]) -> None:
    """Answers each line of the standard input with an epoch and a line of JSON.

    Args:
        prepare: from the arguments to a function that trains one epoch.
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
        }
        print(json.dumps(found), file=answer, flush=True)


def _peak_mib() -> float:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return float("nan")
