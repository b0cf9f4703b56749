"""Runs examples in full and keeps what they print in `outputs/`, with versions and seconds.

python examples/record.py first_private_model
python examples/record.py quickstart:quickstart_mnist --dataset mnist
"""

import importlib.metadata
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGES = ("tensorflow", "keras", "dp-accounting")


def main() -> None:
    name, _, output = sys.argv[1].partition(":")
    command = ["examples/" + name + ".py", *sys.argv[2:]]
    start = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=FOLDER.parent,
        env={**os.environ, "PYTHONPATH": ".", "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    seconds = time.perf_counter() - start
    versions = [f"{package} {importlib.metadata.version(package)}" for package in PACKAGES]
    about = ", ".join([f"Python {platform.python_version()}", *versions, f"{os.cpu_count()} cores"])
    text = f"$ python {' '.join(command)}\n{result.stdout.rstrip()}\n\n{about}; {seconds:.0f} s\n"
    (FOLDER / "outputs" / f"{output or name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
