"""Groups of variables with a basis of their own, and the allocation of directions to them."""

import numpy as np
import pytest

from tests.release.gep_models import gep_model
from tf_lowrank_dp.layers.parameters import describe_parameters
from tf_lowrank_dp.release.anchor_groups import allocated_bases, anchor_groups, size_of


@pytest.fixture(scope="module")
def parameters():
    return describe_parameters(gep_model())


def test_by_default_each_layer_is_a_group(parameters):
    assert anchor_groups(parameters) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("count", range(1, 7))
def test_contiguous_groups_hold_each_variable_once_in_order(parameters, count):
    groups = anchor_groups(parameters, num_groups=count)
    assert len(groups) == count and all(groups)
    assert sum(groups, []) == list(range(6))


def test_contiguous_groups_are_of_similar_size(parameters):
    # 27 + 3, 2160 + 20, 60 + 3: the large kernel is one of the two halves.
    first, second = anchor_groups(parameters, num_groups=2)
    assert 2 in first + second
    assert abs(size_of(parameters, first) - size_of(parameters, second)) <= 2160


def test_given_groups_are_those_whose_parts_of_paths_match(parameters):
    assert anchor_groups(parameters, groups=[["head", "conv"], ["hidden"]]) == [
        [0, 1, 4, 5],
        [2, 3],
    ]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([["conv"], ["hidden"]], "head/kernel"),
        ([["conv", "hidden", "head"], ["kernel"]], "conv/kernel"),
        ([["conv", "hidden", "head"], ["dense_7"]], "dense_7"),
    ],
    ids=["missing", "twice", "empty"],
)
def test_groups_that_do_not_hold_each_variable_once_are_refused(parameters, groups, message):
    with pytest.raises(ValueError, match=f"(?s)Expected.*Received.*{message}"):
        anchor_groups(parameters, groups=groups)


def test_more_groups_than_variables_are_refused(parameters):
    with pytest.raises(ValueError, match="num_groups=7"):
        anchor_groups(parameters, num_groups=7)


@pytest.mark.parametrize("num_bases", [3, 10, 100, 1000])
def test_bases_are_in_proportion_to_the_root_of_the_size_and_add_up(num_bases):
    sizes = [40_000, 10_000, 90_000]
    bases = allocated_bases(sizes, num_bases, 2000)
    assert sum(bases) == num_bases and min(bases) >= 1
    shares = num_bases * np.sqrt(sizes) / np.sum(np.sqrt(sizes))
    assert np.all(np.abs(np.array(bases) - np.maximum(shares, 1)) <= 1)


def test_no_group_gets_more_bases_than_it_has_parameters_or_anchors():
    assert allocated_bases([3, 10_000, 500], 200, 60) == [3, 60, 60]


def test_fewer_bases_than_groups_are_refused():
    with pytest.raises(ValueError, match="num_bases=2"):
        allocated_bases([5, 5, 5], 2, 10)
