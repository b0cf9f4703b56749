"""Runs the programs of a folder on whatever device JAX finds: norms released, over the clip.

python released.py [--at-once 8]

One line of JSON for each: every record of every data set alone, its largest norm over the clip of
its block and of the whole, in float64.  Needs JAX and NumPy.
"""

import argparse
import concurrent.futures
import gzip
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def measured(stem: str) -> dict:
    """The largest norms of one program."""
    import jax
    import numpy as np
    from jax._src import xla_bridge
    from jax._src.lib import xla_client

    jax.config.update("jax_enable_x64", True)
    facts = json.loads((HERE / f"{stem}.json").read_text())
    backend = xla_bridge.get_backend()
    device = backend.local_devices()[0]
    executable = backend.compile_and_load(
        gzip.decompress((HERE / f"{stem}.mlir.gz").read_bytes()),
        xla_client.DeviceList((device,)),
        xla_client.CompileOptions(),
    )
    arrays = np.load(HERE / f"{stem}.npz")
    kept = [arrays[name] for name in sorted(arrays.files, key=_number) if name[0] == "k"]
    data = [arrays[name] for name in sorted(arrays.files, key=_number) if name[0] == "d"]
    kept = [jax.device_put(array, device) for array in kept]
    *clips, whole = facts["clips"]
    largest = [0.0] * len(facts["clips"])
    releases = 0
    for batch in zip(*data, strict=True):
        inputs = [jax.device_put(array, device) for array in batch]
        for one in np.eye(len(batch[0]), dtype=np.float32):
            presence = jax.device_put(one, device)
            shards = executable.execute_sharded([*inputs, presence, *kept])
            blocks = [s[0] for s in shards.disassemble_into_single_device_arrays()[: len(clips)]]
            norms = [np.linalg.norm(np.asarray(block, np.float64)) for block in blocks]
            found = [norm / clip for norm, clip in zip(norms, clips, strict=True)]
            found.append(np.hypot.reduce(norms) / whole)
            largest = [float(max(a, b)) for a, b in zip(largest, found, strict=True)]
            releases += 1
    return {"name": facts["name"], "device": str(device.device_kind), "releases": releases,
            "largest": max(largest)}  # fmt: skip


def _number(name: str) -> int:
    return int(name.split("_")[1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--at-once", type=int, default=8, help="processes")
    parser.add_argument("--alone", help="run the one program here")
    args = parser.parse_args()
    if args.alone:
        print(json.dumps(measured(args.alone)), flush=True)
        return

    def run(stem: str) -> None:
        command = [sys.executable, __file__, "--alone", stem]
        done = subprocess.run(command, capture_output=True, text=True)
        said = [line for line in done.stderr.splitlines() if line.strip()]
        failed = {"name": json.loads((HERE / f"{stem}.json").read_text())["name"]}
        failed["failed"] = said[-1][:300] if said else f"exit {done.returncode}"
        print(done.stdout.strip() or json.dumps(failed), flush=True)

    with concurrent.futures.ThreadPoolExecutor(args.at_once) as pool:
        list(pool.map(run, sorted(path.stem for path in HERE.glob("*.json"))))


if __name__ == "__main__":
    main()
