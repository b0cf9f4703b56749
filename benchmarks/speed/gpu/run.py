"""Runs and times the programs of a folder with JAX, on whatever device JAX finds.

python run.py [NAME ...] [--repeat 20]

For each program one line of JSON: device, milliseconds of a step (median, after one warm-up), of
the first call, peak memory in bytes, and how far loss and gradients are from what TensorFlow
computed where that was recorded.  Each runs in a process of its own; one that does not fit is
reported as such: the largest batch is the last that fits.  Needs JAX and NumPy, and `inputs.py`
beside this file.
"""

import argparse
import gzip
import json
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="default: all, small batches first")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--alone", action="store_true", help="run the one program here")
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(measured(args.names[0], args.repeat)), flush=True)
        return
    facts = {path.stem: json.loads(path.read_text()) for path in HERE.glob("*.json")}
    for name in args.names or sorted(facts, key=lambda name: (facts[name]["batch"], name)):
        command = [sys.executable, __file__, name, "--repeat", str(args.repeat), "--alone"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode == 0:
            print(done.stdout.splitlines()[-1], flush=True)
        else:
            said = [line for line in done.stderr.splitlines() if line.strip()]
            reason = said[-1][:300] if said else f"exit {done.returncode}"
            print(json.dumps(settings_of(facts[name]) | {"failed": reason}), flush=True)


def settings_of(facts: dict) -> dict:
    """What tells one program from another, and which version wrote it."""
    return {name: facts[name] for name in ("model", "optimizer", "precision", "batch", "script")}


def measured(name: str, repeat: int) -> dict:
    """One program: compiled, run once, timed."""
    import jax
    import numpy as np
    from inputs import made
    from jax._src import xla_bridge
    from jax._src.lib import xla_client

    facts = json.loads((HERE / f"{name}.json").read_text())
    backend = xla_bridge.get_backend()
    device = backend.local_devices()[0]
    start = time.perf_counter()
    executable = backend.compile_and_load(
        gzip.decompress((HERE / f"{name}.mlir.gz").read_bytes()),
        xla_client.DeviceList((device,)),
        xla_client.CompileOptions(),
    )
    compiled = time.perf_counter() - start
    # 64-bit keys and counters are what they are, and not cut to 32 bits.
    jax.config.update("jax_enable_x64", True)
    numbers = [made(description, seed) for seed, description in enumerate(facts["inputs"])]
    inputs = [jax.device_put(number, device) for number in numbers]
    del numbers

    def run() -> tuple[list, float]:
        start = time.perf_counter()
        shards = executable.execute_sharded(inputs).disassemble_into_single_device_arrays()
        outputs = [shard[0] for shard in shards]
        for output in outputs:
            output.block_until_ready()
        return outputs, 1e3 * (time.perf_counter() - start)

    outputs, first = run()
    found = [float(np.asarray(output)) for output in outputs[: facts["outputs"]]]
    del outputs
    times = [run()[1] for _ in range(repeat)]
    record = settings_of(facts) | {
        "device": str(device.device_kind),
        "median_ms": round(statistics.median(times), 3),
        "ms": [round(t, 3) for t in times],
        "first_ms": round(first, 1),
        "compile_s": round(compiled, 1),
        "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),
        "jax": jax.__version__,
    }
    if "expected" in facts:
        (loss, *norms), (expected, *others) = found, facts["expected"]
        largest = max(abs(a - b) for a, b in zip(norms, others, strict=True)) / max(others)
        record["difference"] = {"loss": abs(loss - expected) / expected, "gradients": largest}
    return record


if __name__ == "__main__":
    main()
