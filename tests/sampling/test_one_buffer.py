"""Sources that fill one array anew for each record or batch: each is taken as it was given."""

import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_lowrank_dp.sampling import PoissonSampler, Records, declared_dataset

N, SIZE = 16, 2


def buffer(*shape):
    """An array at an address where TensorFlow takes it without a copy."""
    size = int(np.prod(shape)) * 4
    memory = np.zeros(size + 64, "uint8")
    start = -memory.ctypes.data % 64
    return memory[start : start + size].view("float32").reshape(shape)


class OneRow:
    """Fills one array slowly, as some decoders and readers of files do."""

    def __init__(self):
        self.row = buffer(N)

    def __len__(self):
        return N

    def __getitem__(self, index):
        self.row[:] = 0.0
        time.sleep(0.001)
        self.row[index] = 1.0
        return self.row


@pytest.mark.parametrize("calls", [1, 4])
@pytest.mark.parametrize("map_", [None, lambda x: tf.reshape(x, (N,))], ids=["as it is", "map"])
def test_records_may_be_read_into_one_array(calls, map_):
    """The last record took the places of all: it moved the sum by 12 clips for 1, others by 0."""
    records = Records(OneRow(), map=map_, num_parallel_calls=calls)
    for batch in PoissonSampler(records, batch_size=N, steps=4):  # at the rate 1
        present = batch["x"][batch["presence"] > 0]
        np.testing.assert_array_equal(np.sort(present, 0), np.sort(np.eye(N), 0))
        np.testing.assert_array_equal(np.sort(present.argmax(1)), np.arange(N))


class OneDict(OneRow):
    """Puts new arrays into one dict, as slowly."""

    def __init__(self):
        self.record = {}

    def __getitem__(self, index):
        self.record["x"] = np.float32(index)
        time.sleep(0.001)
        self.record["y"] = np.float32(index)
        return self.record


class OneFile(OneRow):
    """Seeks in one open file."""

    def __init__(self, path):
        np.repeat(np.arange(N, dtype="float32"), 1000).tofile(path)
        self.file = open(path, "rb")

    def __getitem__(self, index):
        self.file.seek(index * 4000)
        time.sleep(0.001)
        return np.frombuffer(self.file.read(4000), "float32")


@pytest.mark.parametrize("kind", [OneDict, OneFile])
def test_records_of_a_source_that_keeps_state_while_it_reads_are_not_mixed(kind, tmp_path):
    """Threads that read at once had rows of one record with targets of another: 5.6 clips for 1."""
    source = kind(tmp_path / "records") if kind is OneFile else kind()
    map_ = (lambda d: (d["x"], d["y"])) if kind is OneDict else (lambda row: (row[0], row[-1]))
    for batch in PoissonSampler(Records(source, map=map_), batch_size=N, steps=8):
        present = batch["presence"] > 0
        np.testing.assert_array_equal(batch["x"][present], batch["y"][present])
        np.testing.assert_array_equal(np.sort(batch["x"][present]), np.arange(N))


def test_records_of_a_thread_safe_source_are_read_at_once():
    class Together(OneRow):
        def __init__(self):
            self.inside, self.most = 0, 0

        def __getitem__(self, index):
            self.inside += 1
            self.most = max(self.most, self.inside)
            time.sleep(0.01)
            self.inside -= 1
            return np.float32(index)

    sources = Together(), Together()
    for source, thread_safe in zip(sources, (False, True), strict=True):
        records = Records(source, thread_safe=thread_safe, num_parallel_calls=4)
        list(PoissonSampler(records, batch_size=N, steps=4))
    assert sources[0].most == 1 < sources[1].most


def filled(rows, number):
    rows[:] = 0.0
    for row in range(SIZE):
        rows[row, number * SIZE + row] = 1.0
    return rows


def batches_in_one_array():
    rows = buffer(SIZE, N)
    for number in range(N // SIZE):
        yield filled(rows, number)


class OneBatch(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.rows = buffer(SIZE, N)

    def __len__(self):
        return N // SIZE

    def __getitem__(self, number):
        return filled(self.rows, number)


SOURCES = {
    "generator": batches_in_one_array,
    "function": lambda: batches_in_one_array,
    "PyDataset": OneBatch,
}


@pytest.mark.parametrize("kind", SOURCES)
def test_batches_may_be_read_into_one_array(kind):
    """Batches that were read ahead held the next ones: their records moved 8 clips for 4."""
    stated = {"sampling": "shuffle", "batch_size": SIZE, "steps_per_epoch": N // SIZE}
    found = []
    for batch in declared_dataset(SOURCES[kind](), **stated)[0]:
        time.sleep(0.001)  # the next ones are read meanwhile
        found.append(batch["x"].numpy())
    np.testing.assert_array_equal(np.concatenate(found), np.eye(N))


def test_what_a_generator_gave_to_a_call_that_failed_is_kept_as_it_was():
    source = batches_in_one_array()
    with pytest.raises(ValueError, match="steps_per_epoch"):
        declared_dataset(source, sampling="shuffle", batch_size=SIZE)
    stated = {"sampling": "shuffle", "batch_size": SIZE, "steps_per_epoch": N // SIZE}
    batches = declared_dataset(source, **stated)[0]
    found = np.concatenate([batch["x"].numpy() for batch in batches])
    np.testing.assert_array_equal(found, np.eye(N))
