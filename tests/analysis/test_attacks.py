import numpy as np
import pytest
from analysis.classifiers import SHAPE, expected_gradient, probabilities

from tf_capsules.analysis.attacks import basic_iterative, craft, fgsm, input_units


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((7, *SHAPE), dtype="float32")


def test_a_step_follows_the_gradient_in_closed_form(gradient, images, labels):
    want = expected_gradient(images, labels)
    np.testing.assert_allclose(fgsm(gradient, images, labels, 0.25), images + 0.25 * np.sign(want), atol=1e-6)
    towards = fgsm(gradient, images, labels, 0.25, targeted=True)
    np.testing.assert_allclose(towards, images - 0.25 * np.sign(want), atol=1e-6)
    np.testing.assert_array_equal(fgsm(gradient.model, images, labels, 0.25, targeted=True), towards)


def test_one_iterative_step_is_the_fast_method(gradient, images, labels):
    one = basic_iterative(gradient, images, labels, 0.125, steps=1, bounds=(0, 1))
    np.testing.assert_array_equal(one, fgsm(gradient, images, labels, 0.125, bounds=(0, 1)))


@pytest.mark.parametrize("step_size", [None, 0.07])
def test_iterations_follow_the_gradient_where_they_are_and_stay_within_epsilon(gradient, images, labels, step_size):
    got = basic_iterative(gradient, images, labels, 0.1, steps=3, step_size=step_size)
    want = images
    for _ in range(3):
        want = want + (step_size or 0.1 / 3) * np.sign(expected_gradient(want, labels))
        want = np.clip(want, images - 0.1, images + 0.1)
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert np.abs(got - images).max() <= 0.1 + 1e-6


@pytest.mark.parametrize("attack", [fgsm, basic_iterative])
def test_bounds_hold_and_targets_become_likelier(gradient, images, labels, attack):
    targets = (labels + 1) % 4
    got = attack(gradient, images, targets, 0.3, targeted=True, bounds=(0, 1))
    assert got.min() == 0 and got.max() == 1 and got.dtype == np.float32
    index = np.arange(7), targets
    assert (probabilities(got)[index] > probabilities(images)[index]).all()
    assert (probabilities(attack(gradient, images, labels, 0.3))[np.arange(7), labels]
            < probabilities(images)[np.arange(7), labels]).all()  # fmt: skip


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": -0.1}, "Epsilon must be a number, 0 or more. Received: -0.1"),
        ({"epsilon": float("nan")}, "Epsilon must be a number, 0 or more. Received: nan"),
        ({"epsilon": True}, "Received: True"),
        ({"steps": 0}, "`steps` must be a whole number of at least 1. Received: 0"),
        ({"step_size": 0.0}, "`step_size` must be a number above 0. Received: 0.0"),
        ({"bounds": 1}, "two numbers, the lower one first. Received: 1"),
        ({"bounds": (1, 0)}, r"two numbers, the lower one first. Received: \(1, 0\)"),
        ({"bounds": (0.5, 1)}, r"beyond the bounds \(0.5, 1\)"),
        ({"images": np.zeros((7, 3, 2, 1))}, r"images \(2, 3, 1\). Received an array of shape \(7, 3, 2, 1\)"),
        ({"images": np.zeros((0, *SHAPE))}, r"Received an array of shape \(0, 2, 3, 1\)"),
        ({"images": np.full((7, *SHAPE), np.nan)}, "images of finite numbers"),
        ({"labels": np.zeros(5, int)}, "Each image needs one label. Received 7 images and 5 labels"),
        ({"labels": np.full(7, 4)}, "from 0 to 3. Received: "),
        ({"labels": np.zeros(7)}, "whole numbers from 0 to 3"),
    ],
)
def test_what_makes_no_sense_is_named(gradient, images, labels, change, message):
    arguments = {"images": images, "labels": labels, "epsilon": 0.1} | change
    with pytest.raises(ValueError, match=message):
        basic_iterative(gradient, **arguments)


def test_units_follow_the_preprocessing():
    assert input_units((("shift", 2), ("crop", 24))) == ("shares of the pixel range", (0.0, 1.0))
    assert input_units((("crop", 24), ("standardize",)))[1] is None
    assert input_units((("standardize_each",), ("crop", 24))) == ("standard deviations of a channel", None)


@pytest.mark.parametrize("attack", ["fgsm", "bim"])
def test_crafted_images_stay_within_bounds(gradient, images, labels, attack):
    (made,) = craft(gradient, attack, images, labels, [0.9], 2, False, (0, 1))
    assert made.min() == 0 and made.max() == 1
