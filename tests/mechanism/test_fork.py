"""A forked process draws noise of its own."""

import os

import pytest

from tf_lowrank_dp.mechanism.noise import NoiseGenerator


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the platform cannot fork")
def test_a_forked_process_takes_a_key_of_its_own():
    generator = NoiseGenerator()
    parent = int(generator._key.numpy()[0])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, str(int(generator._key.numpy()[0])).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        key = pipe.read()
    os.waitpid(child, 0)
    assert key and int(key) != parent
    assert int(generator._key.numpy()[0]) == parent
