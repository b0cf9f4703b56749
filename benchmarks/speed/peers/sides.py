"""Which libraries are timed, what their environments hold, and how they are started."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent


@dataclasses.dataclass(frozen=True)
class Library:
    """A library with an environment of its own.

    Attributes:
        script: its side, a file of this folder.
        requirements: what pip installs; none for the environment that runs this.
        modes: how it trains: first without privacy, then privately.
    """

    script: str
    requirements: tuple[str, ...]
    modes: tuple[str, ...]


LIBRARIES = {
    "tf_lowrank_dp": Library("keras_side.py", (), ("plain", "dpsgd", "rgp", "lsg")),
    "opacus": Library("opacus_side.py", ("opacus>=1.6",), ("plain", "hooks", "ghost")),
    "jax-privacy": Library(
        "jax_privacy_side.py", ("jax-privacy>=2.0", "keras>=3.12"), ("plain", "vmap")
    ),
    "tensorflow-privacy": Library(
        "tensorflow_privacy_side.py",
        ("tensorflow==2.15.*", "tensorflow-privacy==0.9.0"),  # the newest that it runs with
        ("plain", "fast", "vectorised"),
    ),
}


def python_of(name: str, folder: pathlib.Path) -> pathlib.Path:
    """The interpreter of a library's environment below `folder`, which is made if it is missing.

    Raises:
        subprocess.CalledProcessError: pip cannot install it.
    """
    library = LIBRARIES[name]
    if not library.requirements:
        return pathlib.Path(sys.executable)
    python = folder / name / "bin" / "python"
    complete = folder / name / "complete"
    if not complete.exists():
        venv.create(folder / name, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "-q", *library.requirements], check=True)
        complete.touch()
    return python


def versions_of(python: pathlib.Path) -> dict[str, str]:
    """Versions of what an environment computes with."""
    code = (
        "import importlib.metadata as m, json; print(json.dumps({d.metadata['Name'].lower(): "
        "d.version for d in m.distributions()}))"
    )
    found = json.loads(subprocess.check_output([python, "-I", "-c", code]))
    names = ("tensorflow", "keras", "torch", "jax", *LIBRARIES)
    return {name: found[name] for name in names if name in found}


class Side:
    """One library, mode and model, prepared in a process of its own, which waits to be told.

    Raises:
        RuntimeError: it cannot be prepared, or an epoch fails; with the end of what it said.
    """

    def __init__(self, python: pathlib.Path, script: str, **settings: object):
        command = [str(python), str(HERE / script)]
        for name, value in settings.items():
            command += [f"--{name}", str(value)]
        self._said = tempfile.TemporaryFile("w+")
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=environment,
        )

    def epoch(self) -> dict[str, float]:
        """Trains one epoch: `wall_s`, `cpu_s`, `since_start_s`, `peak_mib`."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write("epoch\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            self._said.seek(0)
            said = self._said.read().strip().splitlines()
            raise RuntimeError(said[-1][:200] if said else "no answer")
        return json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.communicate()
        self._said.close()
