"""The ledger on disk, written before each step: steps that a crash loses are counted as well."""

from __future__ import annotations

import errno
import os
import sys
import threading
import weakref

from tf_lowrank_dp.accounting.ledger import PrivacyLedger

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]  # no module, which `_lock` asks for

_OPEN: weakref.WeakValueDictionary[str, LedgerFile] = weakref.WeakValueDictionary()
_BEGINNING = PrivacyLedger().to_json()[:20].encode()


class LedgerFile:
    """A file that only grows; its ledger is the union of its lines. Opened by `open_ledger_file`.

    Each line is the text of a ledger with its checksum, and holds what the lines before it do not.

    Formal guarantees:
        * When `add` returns, the line is on the disk (`fsync`), after a crash of the machine too.
        * What was added stays, by several threads as well: nothing that is complete is overwritten,
          replaced or removed.
        * A last line that a crash cut off is ignored: `add` had not returned, so what it announces
          was not done. Any other damage is refused, and the file is left as it is.
        * One process at a time writes: the file is locked by `flock` until this object is gone,
          whatever else the process opens and closes. A second one, and a fork, are refused. Network
          file systems that emulate `flock` by record locks (NFS, SMB) lose the lock when the
          process closes any descriptor of the file: use a local one.

    Attributes:
        ledger: what the file holds.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._process = os.getpid()
        self._adding = threading.Lock()
        is_new = not os.path.exists(path)
        # Nothing is cut before the lock: another process may have made and filled it meanwhile.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
        self._file = open(descriptor, "r+b", buffering=0)
        self._lock()
        content = self._file.read()
        self.ledger, self._size = _read(path, content)
        if self._size and not content[: self._size].endswith(b"\n"):
            self._write(b"\n")
        if is_new:
            _sync_folder_of(path)

    @property
    def is_at_its_path(self) -> bool:
        """Whether this file is the one that its path leads to: it may have been deleted since."""
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), os.stat(self._path))
        except FileNotFoundError:
            return False

    def add(self, ledger: PrivacyLedger) -> None:
        """Writes what the file does not hold yet, and returns when it is on the disk.

        Args:
            ledger: entries with the steps that were taken, or are about to be.

        Raises:
            OSError: it cannot be written, for example because the disk is full. What the file held
                is kept.
            RuntimeError: the process was forked from the one that opened the file, which lacks it.

        Example:

        >>> import tempfile
        >>> from tf_lowrank_dp.accounting import LedgerEntry, Sampling
        >>> file = open_ledger_file(tempfile.mkdtemp() + "/ledger.jsonl")
        >>> file.add(PrivacyLedger([LedgerEntry(Sampling.poisson(10, 2), 1.0, steps=5)]))
        >>> file.ledger.num_steps
        5
        """
        if self._with(ledger) == self.ledger:
            return
        if os.getpid() != self._process:
            raise RuntimeError(
                f"Expected the process {self._process}, which opened the ledger file "
                f"'{self._path}'. Received: process {os.getpid()}, forked from it. "
                "Give each process a file of its own: make_private(model, ledger_path=...)."
            )
        with self._adding:
            held, merged = self.ledger, self._with(ledger)
            if merged == held:
                return
            news = [entry for entry in merged.entries if entry not in held.entries]
            line = PrivacyLedger(news, prior_spend_unknown=merged.prior_spend_unknown).to_json()
            self._write(line.encode() + b"\n")
            self.ledger = merged

    def _with(self, ledger: PrivacyLedger) -> PrivacyLedger:
        """What the file would hold."""
        held = self.ledger
        merged = PrivacyLedger(held.entries, prior_spend_unknown=held.prior_spend_unknown)
        merged.merge(ledger)
        return merged

    def _write(self, line: bytes) -> None:
        """Writes a line after the last complete one, over what a crash may have left there."""
        try:
            self._file.truncate(self._size)
            self._file.seek(self._size)
            if self._file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OSError(
                error.errno,
                f"Expected to write the steps ahead to the ledger file. Received: {error}. "
                "Nothing was spent; make room and train on",
                self._path,
            ) from error
        self._size += len(line)

    def _lock(self) -> None:
        """Keeps other processes away until this one ends."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self._file.close()
            raise RuntimeError(
                "Expected a ledger file that no other process writes to. Received: "
                f"'{self._path}', which one does. End it, or give each training a file of its own."
            ) from error


def open_ledger_file(path: str | os.PathLike) -> LedgerFile:
    """Opens the ledger file at `path`, or creates it; in one process, the same file is one object.

    Args:
        path: of a local file, in a folder that exists.

    Returns:
        The file, with what it holds in `ledger`.

    Raises:
        OSError: it cannot be opened.
        RuntimeError: another process has it open, or the system is Windows.
        ValueError: it is no ledger file, or it is damaged. It is left as it is.

    Example:

    >>> import tempfile
    >>> open_ledger_file(tempfile.mkdtemp() + "/ledger.jsonl").ledger
    <PrivacyLedger: 0 entries, 0 steps>
    """
    if fcntl is None:
        raise RuntimeError(
            "Expected a POSIX system, where a ledger file is locked by `flock`. Received: "
            f"{sys.platform}, where nothing would keep a second training away from it. Leave out "
            "ledger_path; checkpoints hold the ledger as well."
        )
    path = os.path.realpath(path)
    file = _OPEN.get(path)
    if file is None or file._process != os.getpid() or not file.is_at_its_path:
        file = _OPEN[path] = LedgerFile(path)
    return file


def _read(path: str, content: bytes) -> tuple[PrivacyLedger, int]:
    """The ledger in the content of a file, and the length of its complete lines."""
    ledger, size = PrivacyLedger(), 0
    for line in content.splitlines(keepends=True):
        try:
            ledger.merge(PrivacyLedger.from_json(line.decode()))
        except ValueError as error:
            if size + len(line) == len(content) and _is_cut_off(line):
                break
            raise ValueError(
                f"Expected a ledger file. Received: '{path}', which is damaged at byte {size} "
                f"({error}) The file was left as it is. Restore it from a backup; without it the "
                "prior spend is unknown."
            ) from error
        size += len(line)
    return ledger, size


def _is_cut_off(line: bytes) -> bool:
    """Whether a line can be the part of one that reached the disk; the rest may be zeros."""
    written = line.rstrip(b"\0")
    return not line.endswith(b"\n") and written[:20] == _BEGINNING[: len(written)]


def _sync_folder_of(path: str) -> None:
    """Makes the name of a new file durable as well."""
    if os.name != "posix":
        return
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
