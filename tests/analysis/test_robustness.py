import keras
import numpy as np
import pytest
from analysis.classifiers import KERNEL, SHAPE, expected_gradient, linear

from tf_capsules.analysis.attacks import basic_iterative
from tf_capsules.analysis.input_gradient import InputGradient
from tf_capsules.analysis.robustness import GOALS, masking_signs, measure_attacks, measure_gradients, table
from tf_capsules.losses import MarginLoss


@pytest.fixture(scope="module")
def images():
    return np.random.default_rng(0).random((7, *SHAPE), dtype="float32")


def test_the_loss_of_training_may_be_flat_where_the_default_is_not(images, labels):
    """The sigmoid outputs are like capsule lengths: above 0.9 for the right class, below 0.1 for the others."""
    dense = keras.layers.Dense(4, "sigmoid", kernel_initializer="ones")
    model = keras.Sequential([keras.Input(SHAPE), keras.layers.Flatten(), dense])
    right = np.zeros(7, int)
    dense.set_weights([np.full((6, 4), 0.01), np.array([4, -4, -4, -4])])
    model.compile(loss=MarginLoss())
    assert measure_gradients(InputGradient(model, "trained"), images, right) == (1.0, 0.0)
    zeros, norm = measure_gradients(InputGradient(model), images, right)
    assert zeros == 0 and norm > 0
    rows = list(measure_attacks({"flat": InputGradient(model, "trained")}, images, right, [0.5], ["fgsm"]))
    assert {row["zero_gradient_share"] for row in rows} == {1.0}
    assert masking_signs(rows) == ["flat: 100.0% of the entries of its gradients are 0"]


def test_rows_are_what_the_models_make_of_the_images(images, labels):
    models = {"a": linear(KERNEL, name="a"), "b": linear(KERNEL[::-1], name="b")}
    gradients = {name: InputGradient(model, batch_size=4) for name, model in models.items()}
    rows = list(measure_attacks(gradients, images, labels, [0.3, 0.1], ["bim"], steps=2, bounds=(0, 1)))
    assert len(rows) == 2 * 2 * 3 * 2 and [row["epsilon"] for row in rows[:6:2]] == [0, 0.1, 0.3]
    for row in rows:
        source, judge = gradients[row["made_on"]], gradients[row["model"]]
        shares = []
        for target in range(4):
            if row["goal"] == "untargeted":
                made = basic_iterative(source, images, labels, row["epsilon"], 2, bounds=(0, 1))
                shares.append((judge.classify(made) == labels).mean())
            else:
                chosen = images[labels != target]
                wanted = np.full(len(chosen), target)
                made = basic_iterative(source, chosen, wanted, row["epsilon"], 2, targeted=True, bounds=(0, 1))
                shares.append((judge.classify(made) == target).mean())
        assert row["value"] == pytest.approx(np.mean(shares))
        assert row["images"] == 7 and row["steps"] == 2
        zeros, norm = measure_gradients(source, images, labels)
        assert (row["zero_gradient_share"], row["gradient_norm"]) == (zeros, norm)


def test_only_images_that_all_models_get_right_are_attacked(images):
    a, b = (InputGradient(linear(kernel)) for kernel in (KERNEL, -KERNEL))
    labels = a.classify(images)
    assert (b.classify(images) != labels).all()
    with pytest.raises(ValueError, match="None of the 7 images is classified correctly by all models"):
        measure_attacks({"a": a, "b": b}, images, labels, only_right=True)
    labels[:2] = (labels[:2] + 1) % 4
    (*_, row) = measure_attacks({"a": a}, images, labels, [0.1], ["fgsm"], ["untargeted"], only_right=True)
    assert row["images"] == 5
    clean = next(measure_attacks({"a": a}, images, labels, [0.1], ["fgsm"], ["untargeted"], only_right=True))
    assert (clean["epsilon"], clean["value"]) == (0, 1)


def test_signs_of_masked_gradients():
    def row(value, made_on="a", attack="bim", goal="untargeted", epsilon=0.1, **changes):
        metric = GOALS[goal]
        row = {"model": "a", "made_on": made_on, "attack": attack, "goal": goal, "epsilon": epsilon, "value": value}
        return row | {"images": 100, "steps": 10, "metric": metric, "zero_gradient_share": 0.1} | changes

    assert masking_signs([row(0.5), row(0.45, "b"), row(0.55, attack="fgsm")]) == []
    assert masking_signs([row(0.1, goal="targeted"), row(0.05, "b", goal="targeted")]) == []
    assert masking_signs([row(0.5), row(0.3, "b"), row(0.2, attack="fgsm")]) == [
        "a: untargeted, epsilon 0.1: bim made on b leaves accuracy at 30.0%, against 50.0% made on itself",
        "a: untargeted, epsilon 0.1: one step leaves accuracy at 20.0%, against 50.0% by 10 steps",
    ]
    assert len(masking_signs([row(0.1, goal="targeted"), row(0.4, "b", goal="targeted")])) == 1


def test_measurements_that_make_no_sense_are_refused_at_once(gradient, images, labels):
    other = InputGradient(linear(KERNEL[:, :3]))
    for arguments, message in (
        (({}, images, labels), "one or more models with the same number of classes"),
        (({"a": gradient, "b": other}, images, labels), "Received: {'a': 4, 'b': 3}"),
        (({"a": gradient}, images, labels, [0]), r"no epsilon above 0 .* Received: \[0\]"),
        (({"a": gradient}, images, labels, [0.1, -1]), "Received: -1"),
        (({"a": gradient}, images, labels, 0.1), "`epsilons` must be a list of numbers. Received: 0.1"),
        (({"a": gradient}, images, labels, [0.1], ["pgd"]), "must be one of 'fgsm', 'bim'. Received: 'pgd'"),
        (({"a": gradient}, images, labels, [0.1], "fgsm"), "`attacks` must have .* Received: 'fgsm'"),
        (({"a": gradient}, images[:0], labels[:0]), "one or more images of finite numbers"),
        (({"a": gradient}, images, labels, [0.1], ["bim"], []), "`goals` must have at least one of"),
        (({"a": gradient}, images, labels[:3]), "Each image needs one label"),
    ):
        with pytest.raises(ValueError, match=message):
            measure_attacks(*arguments)


def test_what_is_named_twice_is_measured_once(gradient, images, labels):
    once, twice = (
        list(measure_attacks({"a": gradient}, images, labels, [0.1], ["fgsm"] * times, ["untargeted"] * times))
        for times in (1, 2)
    )
    assert once == twice


def test_the_norm_is_the_mean_over_images(gradient, images, labels):
    wanted = np.linalg.norm(expected_gradient(images, labels).reshape(7, -1), axis=1).mean()
    zeros, norm = measure_gradients(gradient, images, labels)
    assert zeros == 0 and norm == pytest.approx(wanted, rel=1e-5)


def test_a_table_of_what_is_measured_one_by_one(gradient, images, labels):
    rows = list(measure_attacks({"a": gradient}, images, labels, [0.1], ["fgsm"]))
    assert table(iter(rows)) == table(rows) and "gradients of a: " in table(rows)
    with pytest.raises(ValueError, match="no rows"):
        table([])
