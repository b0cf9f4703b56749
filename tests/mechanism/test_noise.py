"""Noise against the laws of the normal distribution; fixed seeds, bounds of about four sigma."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.stats
import tensorflow as tf

from tf_lowrank_dp.mechanism import noise
from tf_lowrank_dp.mechanism.gaussian import GaussianMechanism
from tf_lowrank_dp.mechanism.noise import NoiseGenerator, normals_of_bits

SIZE = 200_000


def draw(generator, *shapes):
    return [tensor.numpy() for tensor in generator.normal(list(shapes))]


@pytest.mark.parametrize(("noise_multiplier", "clip"), [(1.1, 1.0), (0.5, 3.0), (20.0, 0.01)])
def test_variance_of_what_is_added_is_the_square_of_multiplier_times_clip(noise_multiplier, clip):
    sums = [[tf.fill([SIZE], 5.0)]]
    [[released]] = GaussianMechanism(clip, noise_multiplier).release(sums, NoiseGenerator(seed=1))
    added = released.numpy().astype(np.float64) - 5.0
    variance = (noise_multiplier * clip) ** 2
    assert abs(added.mean()) < 4 * np.sqrt(variance / SIZE)
    assert abs(added.var() / variance - 1) < 4 * np.sqrt(2 / SIZE)


def test_blocks_get_the_noise_of_the_whole_release_each():
    sums = [[tf.zeros([SIZE])], [tf.zeros([SIZE])]]
    released = GaussianMechanism(2.0, 1.5, num_blocks=2).release(sums, NoiseGenerator(seed=2))
    for [block] in released:
        assert abs(block.numpy().std() / 3.0 - 1) < 4 * np.sqrt(0.5 / SIZE)


def test_noise_is_normal():
    [values] = draw(NoiseGenerator(seed=3), (SIZE,))
    assert scipy.stats.kstest(values, "norm").pvalue > 1e-3
    assert abs(scipy.stats.kurtosis(values)) < 4 * np.sqrt(24 / SIZE)


@tf.function(jit_compile=True)
def compiled_normals(bits):
    """As noise is made: compiled by XLA."""
    return normals_of_bits(bits)


def normals(bits):
    """Both halves of the numbers made of bits, integers `(2, n)`, in float64."""
    bits = tf.constant(np.asarray(bits).astype(np.int32).view(np.uint32))
    return [half.numpy().astype(np.float64) for half in compiled_normals(bits)]


def ordinary_and_extreme_bits():
    """Bits `(2, 10000)`, half with `u` near 0 or 1; the first two are the ends."""
    generator = np.random.default_rng(0)
    bits = generator.integers(-(2**31), 2**31, (2, 10_000))
    bits[0, :5000] >>= generator.integers(0, 32, 5000)
    bits[:, :2] = [[-1, 0], [255, 0]]
    return bits


def test_normals_of_bits_are_box_and_mullers_with_40_bits_of_radius():
    """In float64, to float32's relative precision at both ends."""
    bits = ordinary_and_extreme_bits()
    half = np.abs(bits[0] + ((bits[1] & 255) + 0.5) / 256) / 2**32
    radius = np.sqrt(-2 * np.where(bits[0] < 0, np.log(half), np.log1p(-half)))
    angle = ((bits[1] >> 8) + 0.5) * np.pi / 2**23 - np.pi / 4
    x, y = normals(bits)
    np.testing.assert_allclose(x / radius, np.cos(angle), atol=5e-7)
    np.testing.assert_allclose(y / radius, np.sin(angle), atol=5e-7)
    np.testing.assert_allclose(np.hypot(x, y), radius, rtol=1e-6)
    np.testing.assert_allclose(radius[:2], [np.sqrt(82 * np.log(2)), 2.0**-20], rtol=1e-6)
    assert x.all() and y.all()


def test_no_two_radii_have_the_same_bits():
    """Each of the 40 counts, the sign too: `u` of neighbours differs by `2^-40`."""
    first, low = np.arange(-4, 4).repeat(256), np.tile(np.arange(256), 8)
    x, y = normals(np.stack([first, low]))
    squares = x**2 + y**2
    u = np.where(first < 0, np.exp(-squares / 2), -np.expm1(-squares / 2))
    expected = (np.arange(1024) + 0.5) * 2.0**-40
    np.testing.assert_allclose(np.sort(u[first < 0]), expected, rtol=1e-5)
    np.testing.assert_allclose(np.sort(u[first >= 0]), expected, rtol=1e-5)


def test_angles_are_those_of_the_whole_circle():
    """Radius 0.76 for all; points at either end of each quarter and at random, against float64."""
    ends = np.arange(-2, 3)[:, None] * 2**22 + np.arange(-3, 3)
    steps = np.concatenate([ends.ravel(), np.random.default_rng(0).integers(0, 2**24, 10_000)])
    steps = (steps + 2**23) % 2**24 - 2**23
    x, y = normals(np.stack([np.full(len(steps), 2**30), steps << 8]))
    angle = (steps + 0.5) * np.pi / 2**23 - np.pi / 4
    radius = np.sqrt(2 * np.log(4 / 3))
    np.testing.assert_allclose(x, radius * np.cos(angle), atol=3e-7)
    np.testing.assert_allclose(y, radius * np.sin(angle), atol=3e-7)


def test_the_tail_beyond_five_deviations_is_that_of_the_normal_distribution():
    """Where `u` is below `2^-19`, so the radius above 5.13, `u 2^19` is uniform."""
    generator = np.random.default_rng(1)
    bits = generator.integers(-(2**31), 2**31, (2, 100_000))
    bits[0] = generator.integers(-(2**13), 0, 100_000)
    cos, sin = normals(bits)
    u = np.exp(-(cos**2 + sin**2) / 2) * 2**19
    assert scipy.stats.kstest(u, "uniform").pvalue > 1e-3
    assert np.max(np.hypot(cos, sin)) > 6.5


def test_numbers_drawn_in_several_parts_are_all_different(monkeypatch):
    monkeypatch.setattr(noise, "_AT_ONCE", 100)
    draws = draw(NoiseGenerator(seed=11), (60,), (30,), (50,), (7, 40), (), (99,))
    assert [d.shape for d in draws] == [(60,), (30,), (50,), (7, 40), (), (99,)]
    everything = np.concatenate([d.ravel() for d in draws])
    assert len(np.unique(everything)) == len(everything)


def test_noise_of_variables_and_of_steps_is_independent():
    generator = NoiseGenerator(seed=4)
    first, second = draw(generator, (SIZE,), (SIZE,))
    [third] = draw(generator, (SIZE,))
    for a, b in ((first, second), (first, third), (second, third)):
        assert abs(np.corrcoef(a, b)[0, 1]) < 4 / np.sqrt(SIZE)
    # Neither is one stream a shifted copy of another.
    everything = np.concatenate([first, second, third])
    assert len(np.unique(everything)) > 0.9 * len(everything)


@pytest.mark.parametrize("shape", [(1,), (3,), (7, 5), (64, 33)])
def test_no_value_is_repeated_between_variables_and_steps(shape):
    generator = NoiseGenerator(seed=5)
    draws = [tensor for _ in range(5) for tensor in draw(generator, shape, shape, shape)]
    vectors = {tensor.tobytes() for tensor in draws}
    assert len(vectors) == len(draws)
    firsts = {float(tensor.flat[0]) for tensor in draws}
    assert len(firsts) == len(draws)


def test_within_a_large_tensor_no_stretch_repeats_in_the_next_variable():
    first, second = draw(NoiseGenerator(seed=6), (4096,), (4096,))
    stretches = {first[n : n + 4].tobytes() for n in range(4093)}
    assert not any(second[n : n + 4].tobytes() in stretches for n in range(4093))


def test_every_step_of_a_graph_draws_anew():
    generator = NoiseGenerator(seed=7)

    @tf.function
    def step():
        return generator.normal([(8,)])[0]

    draws = {step().numpy().tobytes() for _ in range(10)}
    assert len(draws) == 10


def test_every_pass_of_a_loop_draws_anew():
    generator = NoiseGenerator(seed=7)

    @tf.function(autograph=False)
    def steps():
        array = tf.TensorArray(tf.float32, 10)

        def body(i, array):
            return i + 1, array.write(i, generator.normal([(8,)])[0])

        return tf.while_loop(lambda i, _: i < 10, body, [0, array])[1].stack()

    assert len(np.unique(steps())) == 80


@pytest.mark.parametrize("compiled", [False, True])
def test_threads_never_share_a_draw(compiled):
    generator = NoiseGenerator(seed=12)
    normal = generator.normal
    step = tf.function(normal, autograph=False) if compiled else normal
    with ThreadPoolExecutor(4) as pool:
        draws = list(pool.map(lambda _: step([(4,)])[0].numpy().tobytes(), range(400)))
    assert len(set(draws)) == 400


@pytest.mark.parametrize("jit_compile", [False, True])
def test_eager_graph_and_xla_draw_the_same_noise_for_a_seed(jit_compile):
    shapes = [(50,), (3, 4), (0, 3), ()]
    eager, generator = draw(NoiseGenerator(seed=8), *shapes), NoiseGenerator(seed=8)
    graph = tf.function(
        lambda: generator.normal(shapes), autograph=False, jit_compile=jit_compile
    )()
    for a, b, shape in zip(eager, graph, shapes, strict=True):
        assert a.shape == shape
        np.testing.assert_array_equal(a, b)


def test_noise_under_xla_is_normal_and_repeats_nowhere():
    generator = NoiseGenerator(seed=8)
    step = tf.function(
        lambda: generator.normal([(4096,), (4096,)]), jit_compile=True, autograph=False
    )
    draws = [tensor.numpy() for _ in range(3) for tensor in step()]
    values = np.concatenate(draws)
    assert scipy.stats.kstest(values, "norm").pvalue > 1e-3
    assert len(np.unique(values)) > 0.999 * len(values)
    assert np.max(np.abs(np.corrcoef(draws) - np.eye(6))) < 4.5 / np.sqrt(4096)


def test_seed_is_reproducible_and_no_seed_is_not():
    [a], [b] = draw(NoiseGenerator(seed=9), (100,)), draw(NoiseGenerator(seed=9), (100,))
    np.testing.assert_array_equal(a, b)
    [c], [d] = draw(NoiseGenerator(), (100,)), draw(NoiseGenerator(), (100,))
    assert not np.any(c == d)


def test_zero_noise_multiplier_leaves_the_sums_as_they_are():
    sums = [[tf.constant([1.0, 2.0])], [tf.constant(3.0)]]
    released = GaussianMechanism(float("inf"), 0.0).release(sums, NoiseGenerator())
    np.testing.assert_array_equal(released[0][0], [1.0, 2.0])
    np.testing.assert_array_equal(released[1][0], 3.0)


@pytest.mark.parametrize("noise_multiplier", [0.1, 0.7, 1.1, 3.3333333])
@pytest.mark.parametrize("clip", [0.3, 1.0, 1e-3])
def test_the_event_is_what_is_added_and_sigma_is_rounded_up(noise_multiplier, clip):
    """Against the same seed's standard normals, which are known."""
    mechanism = GaussianMechanism(clip, noise_multiplier)
    assert mechanism.event.noise_multiplier == noise_multiplier
    [normals] = draw(NoiseGenerator(seed=10), (1000,))
    [[added]] = mechanism.release([[tf.zeros([1000])]], NoiseGenerator(seed=10))
    deviations = added.numpy().astype(np.float64) / normals.astype(np.float64)
    deviation = np.median(deviations)
    assert deviation >= noise_multiplier * clip
    np.testing.assert_allclose(deviation, noise_multiplier * clip, rtol=1e-6)


def test_copies_and_pickles_take_a_key_of_their_own():
    generator = NoiseGenerator()
    copies = [copy.deepcopy(generator), pickle.loads(pickle.dumps(generator))]
    draws = {draw(g, (16,))[0].tobytes() for g in [generator, *copies]}
    assert len(draws) == 3


def test_rekey_changes_the_noise():
    generator = NoiseGenerator()
    [before] = draw(generator, (100,))
    generator.rekey()
    [after] = draw(generator, (100,))
    assert not np.any(before == after)


def test_the_key_is_in_no_repr_and_no_pickle():
    generator = NoiseGenerator()
    key = int(generator._key.numpy()[0])
    texts = [repr(generator).encode(), str(generator).encode(), pickle.dumps(generator)]
    for text in texts:
        assert str(key).encode() not in text
        assert key.to_bytes(8, "little") not in text and key.to_bytes(8, "big") not in text


def test_the_key_has_64_random_bits():
    keys = [int(NoiseGenerator()._key.numpy()[0]) for _ in range(64)]
    assert len(set(keys)) == 64
    assert np.bitwise_or.reduce(np.array(keys, np.uint64)) == np.uint64(2**64 - 1)
