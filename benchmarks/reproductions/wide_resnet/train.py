"""Trains with the programs of a folder on whatever device JAX finds.

python train.py wrn16_4 --images DIR [DIR ...] --rates 0.4 1 2.5 --seeds 0 1 2 --json record.jsonl

All methods of the network are tuned alike: each rate with the first seed, the best by held-out
images, then the other seeds at this rate.  Test images choose nothing.  The rate falls linearly to
zero.  Every run is one line of the record; what is there is not run again.  Draws are Poisson
samples by the operating system's random numbers, and each run has noise keys of its own.  Needs
JAX, NumPy and Pillow, and `images.py` and `inputs.py` beside this file.
"""

import argparse
import gzip
import itertools
import json
import pathlib
import secrets
import time

import jax
import jax.numpy as jnp
import numpy as np
from images import read_images
from inputs import made
from jax._src import xla_bridge
from jax._src.lib import xla_client

HERE = pathlib.Path(__file__).resolve().parent
FACTS = (
    "delta", "batch_size", "examples", "precision", "l2_norm_clip", "noise_multiplier",
    "parameters", "script", "environment",
)  # fmt: skip
"""Of a program, that go into the record."""


class Method:
    """A training step of one network, compiled."""

    def __init__(self, network: str, name: str):
        self.facts = json.loads((HERE / f"{network}-{name}.json").read_text())
        start = time.perf_counter()
        self.step, self.evaluation = (
            compiled(HERE / f"{network}-{name}.{kind}.gz") for kind in ("step", "evaluation")
        )
        self.compile_s = round(time.perf_counter() - start, 1)

    def state(self, seed: int) -> list[jax.Array]:
        """The variables as they are before the first step; keys that nobody knows."""
        found: list[np.ndarray] = []
        for place, description in enumerate(self.facts["state"]):
            if description["kind"] == "secret":
                found.append(np.array([secrets.randbits(64)], np.uint64))
            elif "like" in description:
                found.append(found[description["like"]])
            else:
                found.append(made(description, 1000 * seed + place))
        return [jax.device_put(value) for value in found]


def compiled(path: pathlib.Path):
    """The program of a file."""
    backend = xla_bridge.get_backend()
    devices = xla_client.DeviceList((backend.local_devices()[0],))
    text = gzip.decompress(path.read_bytes())
    return backend.compile_and_load(text, devices, xla_client.CompileOptions())


def called(program, arguments: list[jax.Array]) -> list[jax.Array]:
    """What a program gives."""
    shards = program.execute_sharded(arguments).disassemble_into_single_device_arrays()
    return [shard[0] for shard in shards]


def arguments_of(takes: list, state: list[jax.Array]) -> list[jax.Array]:
    """Of a program, after its batch: variables, and constants made from their descriptions."""
    return [
        state[each] if isinstance(each, int) else jax.device_put(made(each, 0)) for each in takes
    ]


@jax.jit
def gathered(images: jax.Array, labels: jax.Array, rows: jax.Array) -> tuple:
    return images[rows].astype(jnp.float32) / 255.0, labels[rows]


def drawn(generator: np.random.Generator, facts: dict) -> tuple[np.ndarray, np.ndarray]:
    """Rows of a Poisson sample, padded to those of the program, and which of them are there.

    The ordinary step gets as many rows as it computes, all different.
    """
    size = facts["rows"]
    if "presence" not in facts["batch"]:
        return generator.choice(facts["examples"], size, replace=False), np.ones(size, np.float32)
    included = generator.random(facts["examples"]) < facts["batch_size"] / facts["examples"]
    chosen = np.flatnonzero(included)
    if len(chosen) > size:
        raise RuntimeError(f"expected at most {size} rows, drew {len(chosen)}")
    rows = np.zeros(size, np.int64)
    rows[: len(chosen)] = chosen
    return rows, (np.arange(size) < len(chosen)).astype(np.float32)


def trained(
    method: Method, images: jax.Array, labels: jax.Array, rate: float, seed: int, steps: int
) -> dict:
    """One run: its accuracy on held-out and test images, and its time."""
    facts = method.facts
    held_out, examples = facts["held_out"], facts["examples"]
    generator = np.random.Generator(np.random.Philox(key=secrets.randbits(128)))
    state = method.state(seed)
    arguments_of_step = arguments_of(facts["takes"], state)
    places = [(n, each) for n, each in enumerate(facts["takes"]) if isinstance(each, int)]
    start, rows_drawn, losses = time.perf_counter(), 0, []
    for step in range(steps):
        rows, presence = drawn(generator, facts)
        rows_drawn += int(presence.sum())
        x, y = gathered(images, labels, held_out + rows)
        batch = {"x": x, "y": y, "presence": presence}
        state[facts["rate"]] = jax.device_put(np.float32(rate * (1 - step / steps)))
        for n, place in places:
            arguments_of_step[n] = state[place]
        given = [jax.device_put(batch[name]) for name in facts["batch"]]
        loss, *state = called(method.step, [*given, *arguments_of_step])[: 1 + len(state)]
        if step % 8 == 7:  # no more steps are in flight than memory holds
            losses.append(float(loss))
    seconds = time.perf_counter() - start
    correct = []
    parameters = arguments_of(facts["evaluation_takes"], state)
    evaluated = np.r_[0:held_out, held_out + examples : len(labels)]
    for rows in np.split(evaluated, len(evaluated) // 1000):
        x, y = gathered(images, labels, rows)
        logits = called(method.evaluation, [x, *parameters])[0]
        correct.append(np.asarray(jnp.argmax(logits, axis=-1)) == np.asarray(y))
    right = np.concatenate(correct)
    return {
        "held_out": float(right[:held_out].mean()),
        "test": float(right[held_out:].mean()),
        "losses": [round(each, 4) for each in losses],
        "wall_s": round(seconds, 2),
        "mean_rows": rows_drawn / steps,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("network")
    parser.add_argument("--methods", nargs="+", help="default: all that are there")
    parser.add_argument("--images", nargs="+", type=pathlib.Path, required=True)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.16, 0.4, 1.0, 2.5])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--json", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, help="fewer than the noise is for, for a quick look")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no run begins after")
    args = parser.parse_args()
    begun = time.perf_counter()
    jax.config.update("jax_enable_x64", True)
    files = sorted(HERE.glob(f"{args.network}-*.json"))
    names = args.methods or [file.stem.removeprefix(f"{args.network}-") for file in files]
    methods = {name: Method(args.network, name) for name in names}
    images, labels = (jax.device_put(each) for each in read_images(args.images))
    print({name: method.compile_s for name, method in methods.items()}, flush=True)
    device = str(jax.devices()[0].device_kind)
    lines = args.json.read_text().splitlines() if args.json.exists() else []
    records = [json.loads(line) for line in lines]

    def run(name: str, rate: float, seed: int) -> dict | None:
        method = methods[name]
        steps = args.steps or method.facts["steps"]
        settings = {"task": f"cifar10-{args.network}", "method": name, "activation": "relu"}
        settings |= {"epsilon": method.facts["epsilon"], "rate": rate, "seed": seed, "steps": steps}
        for record in records:
            if record["settings"] == settings:
                return record
        if time.perf_counter() - begun > args.seconds:
            return None
        record = {"settings": settings, **{key: method.facts[key] for key in FACTS}}
        record |= trained(method, images, labels, rate, seed, steps)
        record |= {"device": device, "jax": jax.__version__, "compile_s": method.compile_s}
        records.append(record)
        with args.json.open("a") as file:
            file.write(json.dumps(record) + "\n")
        shown = {key: round(record[key], 4) for key in ("held_out", "test", "wall_s")}
        print(name, rate, seed, shown, flush=True)
        return record

    first, *others = args.seeds
    tried = [(name, run(name, rate, first)) for rate in args.rates for name in names]
    for seed, name in itertools.product(others, names):
        found = [record for other, record in tried if other == name and record]
        if found:
            run(name, max(found, key=lambda record: record["held_out"])["settings"]["rate"], seed)


if __name__ == "__main__":
    main()
