from tf_capsules import cli


def test_the_header_names_the_iterations_that_are_set(capsys):
    for iterations, words in ((4, "4 concurrent iterations"), (1, "1 concurrent iteration")):
        options = ["--iterations", str(iterations), "--batch-size", "2", "--inference"]
        assert cli.main(["cost", "tsai2020-cifar10-r3", *options]) == 0
        said = capsys.readouterr().out.splitlines()[0]
        assert said == (
            f"tsai2020-cifar10-r3 with iterations {iterations}: CIFAR-10, inverted attention, simple backbone, {words}"
        )


def test_a_size_is_a_number_of_tokens(said):
    assert "`size` must be a whole number of at least 1. Received: 0" in said(
        "cost", "sabour2017-digits", "--size", "0"
    )


def test_a_truth_value_of_the_network(capsys):
    assert cli.main(["cost", "tsai2020-cifar10", "--batch-size", "2", "--network", "layer_norm=False"]) == 0
    assert "561,201" in capsys.readouterr().out  # with it 561,297
