import pytest

from tf_capsules import cli


@pytest.mark.parametrize("value, parameters", [("false", "561,201"), ("False", "561,201"), ("true", "561,297")])
def test_truth_values_of_a_network(value, parameters, capsys):
    assert cli.main(["cost", "tsai2020-cifar10", "--batch-size", "2", "--network", f"layer_norm={value}"]) == 0
    assert parameters in capsys.readouterr().out
