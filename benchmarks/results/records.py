"""Recorded runs: what was run before with the same settings is not run again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Records:
    """Runs and their settings, in a JSON file that is written after every run.

    Args:
        path: The file, which may exist; None keeps the records in memory.
        origin: Of the script that records, from `report.origin`.
    """

    def __init__(self, path: Path | None, origin: dict[str, Any]):
        self._path, self._origin = path, origin
        recorded = path is not None and path.exists()
        self._runs: list[dict[str, Any]] = json.loads(path.read_text())["runs"] if recorded else []

    def get(self, settings: dict[str, Any], run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Returns the record of these settings, from the file or by running it.

        A record of an earlier version of the script is returned as well.

        Args:
            settings: Whatever makes a difference to the result, JSON values only.
            run: Returns what is measured.
        """
        for record in self._runs:
            if record["settings"] == settings:
                return record
        record = {"settings": settings, **run(), "script": self._origin["script"]}
        self._runs.append(record)
        self._write()
        return record

    def _write(self) -> None:
        if self._path is None:
            return
        document = {"environment": self._origin["environment"], "runs": self._runs}
        partial = self._path.with_suffix(".partial")
        partial.write_text(json.dumps(document, indent=1) + "\n")
        partial.replace(self._path)
