"""What every recorded benchmark states about where it ran."""

import importlib.metadata
import os
import platform

PACKAGES = ("tf_lowrank_dp", "tensorflow", "tensorflow-cpu", "keras", "numpy", "dp-accounting")


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
