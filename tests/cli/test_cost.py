import pytest

from tf_capsules import cli


def test_the_header_names_the_iterations_that_are_set(capsys):
    for iterations, words in ((4, "4 concurrent iterations"), (1, "1 concurrent iteration")):
        options = ["--iterations", str(iterations), "--batch-size", "2", "--inference"]
        assert cli.main(["cost", "tsai2020-cifar10-r3", *options]) == 0
        said = capsys.readouterr().out.splitlines()[0]
        assert said == (
            f"tsai2020-cifar10-r3 with iterations {iterations}: CIFAR-10, inverted attention, simple backbone, {words}"
        )


@pytest.mark.parametrize("value, parameters", [("false", "561,201"), ("False", "561,201"), ("true", "561,297")])
def test_truth_values_of_a_network(value, parameters, capsys):
    assert cli.main(["cost", "tsai2020-cifar10", "--batch-size", "2", "--network", f"layer_norm={value}"]) == 0
    assert parameters in capsys.readouterr().out
