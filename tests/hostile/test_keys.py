"""The keys of noise and sampling leave the process in no form."""

import logging
import pickle
import secrets
import zipfile

import keras
import numpy as np

import tf_lowrank_dp as tfdp


def spellings(key):
    """How a key may be written: bytes of both orders, in decimal and in hexadecimal."""
    size = (key.bit_length() + 7) // 8
    yield from (key.to_bytes(size, order) for order in ("little", "big"))
    if key >= 2**64:  # the halves, as numpy holds them
        for half in (key % 2**64, key // 2**64):
            yield from spellings(half)
    yield from (str(key).encode(), b"%x" % key)


def contents(path):
    """A file's bytes, and those of the files inside of it."""
    yield path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            yield from (archive.read(name) for name in archive.namelist())


def test_no_key_is_in_a_file_config_repr_statement_or_log(tmp_path, monkeypatch, caplog, capfd):
    keys, original = [], secrets.randbits

    def watched(bits):
        keys.append(original(bits))
        return keys[-1]

    monkeypatch.setattr(secrets, "randbits", watched)
    caplog.set_level(logging.DEBUG)
    model = keras.Sequential(
        [keras.Input((5,)), keras.layers.Dense(9, "tanh"), keras.layers.Dense(3)]
    )
    tfdp.make_private(model)
    model.compile(
        tfdp.RGPOptimizer("adam", rank=2, l2_norm_clip=1.0, noise_multiplier=1.0, delta=1e-3),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    x, y = np.random.default_rng(0).normal(size=(24, 5)), np.arange(24) % 3
    sampler = tfdp.PoissonSampler(x, y, batch_size=6)
    model.fit(sampler, epochs=2, verbose=2, callbacks=[keras.callbacks.CSVLogger(tmp_path / "log")])
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    assert len(keys) >= 3 and len(set(keys)) == len(keys)  # noise, public numbers, sampling
    engine = model.__dict__["_privacy_state"].run.engine
    texts = [
        repr(model.optimizer), str(model.optimizer.get_config()), model.to_json(),
        tfdp.privacy_statement(model, 1e-3), model.optimizer.ledger.to_json(), str(vars(sampler)),
        repr(sampler), repr(engine.noise), repr(engine), str(model.get_compile_config()),
        caplog.text, *capfd.readouterr(),
    ]  # fmt: skip
    found = [text.encode() for text in texts] + [pickle.dumps(sampler), pickle.dumps(engine.noise)]
    found += [content for path in tmp_path.iterdir() for content in contents(path)]
    assert any(b"loss" in content for content in found)
    for key in keys:
        for spelling in spellings(key):
            assert not any(spelling in content for content in found)
