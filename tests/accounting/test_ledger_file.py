"""The ledger file: what is on the disk is never less than what was announced."""

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tf_lowrank_dp import accounting
from tf_lowrank_dp.accounting import (
    LedgerEntry,
    PrivacyLedger,
    Sampling,
    ledger_file,
    open_ledger_file,
)
from tf_lowrank_dp.accounting.ledger_file import LedgerFile

POISSON = Sampling.poisson(num_examples=100, batch_size=10)


def ledger(steps, entry_id="run", noise_multiplier=1.0):
    return PrivacyLedger([LedgerEntry(POISSON, noise_multiplier, steps, entry_id=entry_id)])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def held(path):
    """What a process that starts now would find."""

    def read():
        copy = path.with_name("copy.jsonl")
        copy.write_bytes(path.read_bytes())
        return LedgerFile(str(copy)).ledger

    return read


def test_what_was_added_is_found_by_the_next_process(path, held):
    file = open_ledger_file(path)
    for steps in (1, 2, 7):
        file.add(ledger(steps))
    file.add(ledger(3, "other", 2.0))
    assert held() == PrivacyLedger([*ledger(7).entries, *ledger(3, "other", 2.0).entries])


def test_fewer_steps_than_the_file_holds_change_nothing(path, held):
    file = open_ledger_file(path)
    file.add(ledger(7))
    size = path.stat().st_size
    file.add(ledger(3))
    assert held() == ledger(7) and path.stat().st_size == size


def test_an_unknown_prior_spend_is_kept(path, held):
    file = open_ledger_file(path)
    file.add(PrivacyLedger(prior_spend_unknown=True))
    file.add(ledger(2))
    assert held().prior_spend_unknown and held().num_steps == 2


def test_a_line_is_synced_before_add_returns(path, monkeypatch):
    synced = []
    monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
    file = open_ledger_file(path)
    file.add(ledger(7))
    assert synced[-1] == path.read_bytes() != b""


def test_a_last_line_cut_off_anywhere_is_ignored_and_written_over(path, held):
    file = open_ledger_file(path)
    file.add(ledger(1))
    complete = path.stat().st_size
    file.add(ledger(2))
    content = path.read_bytes()
    del file
    for cut in range(complete, len(content) - 1):
        path.write_bytes(content[:cut])
        file = LedgerFile(str(path))
        assert file.ledger == ledger(1)
        file.add(ledger(5, "other"))
        assert held() == PrivacyLedger([*ledger(1).entries, *ledger(5, "other").entries])
        del file  # and its lock


@pytest.mark.parametrize("zeros", (1, 5000))
def test_a_tail_of_zeros_as_a_power_failure_leaves_it_is_ignored(path, held, zeros):
    open_ledger_file(path).add(ledger(1))
    path.write_bytes(path.read_bytes() + b"\0" * zeros)
    LedgerFile(str(path)).add(ledger(2))
    assert held() == ledger(2)


def test_a_last_line_that_lacks_only_its_end_counts(path, held):
    open_ledger_file(path).add(ledger(7))
    path.write_bytes(path.read_bytes()[:-1])
    file = LedgerFile(str(path))
    assert file.ledger == ledger(7)
    file.add(ledger(9))
    assert held() == ledger(9)


@pytest.mark.parametrize("position", range(0, 900, 29))
def test_a_changed_byte_is_refused_and_the_file_kept(path, position):
    file = open_ledger_file(path)
    file.add(ledger(1))
    file.add(ledger(2))
    content = bytearray(path.read_bytes())
    content[position % (len(content) - 1)] ^= 1
    path.write_bytes(content)
    del file
    with pytest.raises(ValueError, match="damaged at byte .* left as it is"):
        LedgerFile(str(path))
    assert path.read_bytes() == content


@pytest.mark.parametrize("content", (b"weights", b'{"format": "other"}', b"\n", b"\x89HDF\r\n"))
def test_another_file_is_refused_and_kept(path, content):
    path.write_bytes(content)
    with pytest.raises(ValueError, match="Expected a ledger file"):
        open_ledger_file(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("written", (0, 40))
def test_a_full_disk_raises_and_what_was_held_stays(path, held, monkeypatch, written):
    file = open_ledger_file(path)
    file.add(ledger(1))
    disk = file._file

    class Full:
        def write(self, line):
            if not written:
                raise OSError(errno.ENOSPC, "No space left on device")
            return disk.write(line[:written])

        def __getattr__(self, name):
            return getattr(disk, name)

    monkeypatch.setattr(file, "_file", Full())
    with pytest.raises(OSError, match="Nothing was spent") as error:
        file.add(ledger(2))
    assert error.value.errno == errno.ENOSPC
    assert file.ledger == held() == ledger(1)
    monkeypatch.setattr(file, "_file", disk)
    file.add(ledger(2))
    assert held() == ledger(2)


def test_one_process_shares_one_file(path):
    file = open_ledger_file(path)
    assert open_ledger_file(str(path)) is file


def test_what_several_threads_add_is_all_there(path, held):
    file, interval = open_ledger_file(path), sys.getswitchinterval()

    def add(entry_id):
        for steps in range(1, 50):
            file.add(ledger(steps, entry_id))

    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor() as threads:
            list(threads.map(add, "abc"))
    finally:
        sys.setswitchinterval(interval)
    assert [entry.steps for entry in held().entries] == [49, 49, 49]
    assert sorted(file.ledger.entries, key=str) == sorted(held().entries, key=str)


# Imports the accounting alone, without TensorFlow.
OPEN = f"""
import sys, types
package = types.ModuleType("tf_lowrank_dp")
package.__path__ = [{str(Path(accounting.__file__).parents[1])!r}]
sys.modules["tf_lowrank_dp"] = package
from tf_lowrank_dp.accounting import open_ledger_file
open_ledger_file(sys.argv[1])
"""


def test_a_second_process_is_refused_whatever_the_first_opens_and_closes(path):
    file = open_ledger_file(path)
    script = [sys.executable, "-c", OPEN, str(path)]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert "which one does" in done.stderr
    path.read_bytes()  # closes a descriptor of its own, with which POSIX record locks would go
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert "which one does" in done.stderr
    file._file.close()
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_one_file_under_two_names_is_locked_once(path, tmp_path):
    file = open_ledger_file(path)
    os.link(path, tmp_path / "other.jsonl")
    with pytest.raises(RuntimeError, match="which one does"):
        open_ledger_file(tmp_path / "other.jsonl")
    assert file.ledger == PrivacyLedger()


def test_a_system_without_flock_is_refused_before_a_file_is_made(path, monkeypatch):
    monkeypatch.setattr(ledger_file, "fcntl", None)
    with pytest.raises(RuntimeError, match="(?s)Expected a POSIX system.*Leave out ledger_path"):
        open_ledger_file(path)
    assert not path.exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_a_fork_that_adds_something_is_refused(path, held):
    file = open_ledger_file(path)
    file.add(ledger(1))
    child = os.fork()
    if child == 0:
        try:
            file.add(ledger(1))  # nothing new, as where the child asks what was spent
        except RuntimeError:
            os._exit(2)
        try:
            file.add(ledger(2))
        except RuntimeError as error:
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert held() == ledger(1)


def test_a_file_that_was_deleted_is_made_anew_when_it_is_opened_again(path):
    open_ledger_file(path).add(ledger(3))
    os.unlink(path)
    file = open_ledger_file(path)
    assert file.ledger.num_steps == 0
    file.add(ledger(3))
    assert os.path.getsize(path) > 0
