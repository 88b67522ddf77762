import re

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
    if what == "recipes":
        rows = dict(zip(listed, lines, strict=True))
        for name, figures in (
            ("sabour2017-mnist", r"0\.25% error +not measured"),
            ("sabour2017-mnist-short", r"0\.25% error +0\.\d\d% error, 16 of 16 epochs"),
            ("heinsen2019-smallnorb", r"99\.1% accuracy +not measured"),
            ("sabour2017-digits", r"- +99\.\d\d% accuracy, "),
            ("tsai2020-cifar10-r1", r"- +not measured"),
            ("mazzia2021-smallnorb-short", r"- +\d\d\.\d\d% accuracy, mean of 3 runs, "),
            ("li2018-imagenet", r"7\.51% top-5 error +not measured"),
        ):
            assert re.match(rf"  {name} +{figures}", rows[name]), rows[name]
    assert listed == list({"recipes": recipes, "datasets": datasets, "weights": weights}[what].names())


def test_a_recipe_is_shown_whole(capsys):
    assert cli.main(["list", "mazzia2021-mnist-short"]) == 0
    told = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert told["name"] == "mazzia2021-mnist-short" and told["model"] == "EfficientCapsNet"
    assert told["optimizer"] == "Adam" and told["epochs"] == "60" and told["learning_rate"] == "0.003"
    assert told["preprocess"].startswith("(('rotate', 30), ")
    assert told["source"] == "no row of the paper: a short regime" and told["device"].startswith(
        "two CPU cores; about 40"
    )
    assert re.match(r"0\.\d\d% error, mean of 3 runs, 60 of 60 epochs", told["measured here"])
    assert told["published"] == "0.26% error"
    assert not {"transformer", "mixup", "momentum_cycle", "loss_options"} & set(told)


def test_what_can_be_listed(said):
    assert "There is no recipe 'mazzia2021-mnits'. Did you mean mazzia2021-mnist" in said("list", "mazzia2021-mnits")
    assert "There is no list 'datsets'. Did you mean datasets?" in said("list", "datsets")
