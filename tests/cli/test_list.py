import pytest

from tf_capsules import cli, datasets, recipes


@pytest.mark.parametrize("what", ["recipes", "datasets", "weights"])
def test_list(what, capsys):
    from tf_capsules.models import weights

    assert cli.main(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    if what == "recipes":  # below their papers
        lines = [line for line in lines if line.startswith("  ")]
    listed = [line.split()[0] for line in lines]
    assert listed == list({"recipes": recipes, "datasets": datasets, "weights": weights}[what].names())
