"""What every recorded benchmark states about what made it and where it ran."""

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from benchmarks.results.script_version import made_by

PACKAGES = ("tf_lowrank_dp", "tensorflow", "tensorflow-cpu", "keras", "numpy", "dp-accounting")


def origin(script: str | Path) -> dict[str, Any]:
    """Returns `script`, with its version, and `environment`, for a record.

    To be called when the script is imported: it may be edited while it runs.

    Args:
        script: `__file__`, or the folder of a package that is run as one.
    """
    return {"script": made_by(Path(script)), "environment": environment()}


def environment() -> dict[str, object]:
    """Returns versions and the number of usable CPU cores; nothing that identifies a machine."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": len(affinity(0)) if affinity else os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
