"""The networks with the author's weights give the answers of his code."""

import pathlib

import numpy as np
import pytest
from backend import array
from pytorch_files import write

from tf_capsules.models.heinsen2019 import ImageCapsNet, TextCapsNet
from tf_capsules.models.weights.heinsen2019_published import author_name, load_author_weights

FOLDER = pathlib.Path(__file__).parents[3].parent / "shared" / "oracles" / "heinsen_pretrained"
NETWORKS = {
    "smallNORB": ImageCapsNet,
    "SST5R": lambda **options: TextCapsNet(classes=5, norm="post", **options),
    "SST2R": lambda **options: TextCapsNet(classes=2, norm="post", **options),
}


def case_of(name):
    """The author's arrays, some inputs, and the answers of his code to them."""
    if not (FOLDER / f"{name}.npz").exists():
        pytest.skip("the author's weights and answers are not at hand")
    with np.load(FOLDER / f"{name}.npz") as case:
        return dict(case)


def assert_answers(model, case):
    if "images" in case:
        x = case["images"].astype("float32") / 255
    else:
        x = {"embeddings": case["embeddings"].astype("float32"), "mask": case["mask"]}
    outputs = model(x)
    for ours, his in (("activations", "scores"), ("poses", "poses"), ("variances", "variances")):
        np.testing.assert_allclose(array(outputs[ours]), case[his], rtol=1e-4, atol=1e-5, err_msg=his)


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "sequence"])
@pytest.mark.parametrize("name", NETWORKS)
def test_answers_equal_the_author_s(name, zipped, tmp_path):
    """Reads his arrays from both forms of a file. They are known as his, so there is no warning, which would fail."""
    case = case_of(name)
    arrays = {key.removeprefix("weight/"): case[key] for key in case if key.startswith("weight/")}
    assert_answers(NETWORKS[name](weights=write(tmp_path / "state.pt", arrays, zipped)), case)


def test_arrays_in_an_archive_of_numpy_are_read():
    """Files of earlier versions of the package, with the author's arrays, other arrays beside them."""
    case = case_of("smallNORB")
    assert_answers(ImageCapsNet(weights=FOLDER / "smallNORB.npz"), case)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_published_file_is_read_as_it_is(name):
    case, path = case_of(name), FOLDER / f"{name}_pretrained_model_state_dict.pt"
    if not path.exists():
        pytest.skip(f"{path.name}, as the author published it, is not at hand")
    assert_answers(NETWORKS[name](weights=path), case)


def small():
    return TextCapsNet(layers=3, width=8, classes=4, dim=6, parts=9, norm="post")


def arrays_of(model):
    """The weights as the author's code would save them."""
    arrays = {}
    for weight in model.weights:
        name, value = author_name(weight.path), array(weight)
        arrays[name] = value.T if name.endswith("parts.0.weight") else value
    return arrays


def of_nobody():
    return pytest.warns(UserWarning, match="differ from all that he published .*: their SHA-256 is [0-9a-f]{64}")


def test_arrays_that_he_did_not_publish_are_read_with_a_warning(tmp_path):
    first, second = small(), small()
    path = write(tmp_path / "state.pt", {**arrays_of(first), "state": np.zeros(3)})
    with of_nobody():
        load_author_weights(second, path)
    for weight, other in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(array(weight), array(other))
    with of_nobody():
        again = TextCapsNet(layers=3, width=8, classes=4, dim=6, parts=9, norm="post", weights=path)
    np.testing.assert_array_equal(array(again.weights[0]), array(first.weights[0]))
    np.savez(tmp_path / "state.npz", **{f"weight/{name}": value for name, value in arrays_of(first).items()})
    with of_nobody():
        load_author_weights(second, tmp_path / "state.npz")
    np.testing.assert_array_equal(array(second.weights[-1]), array(first.weights[-1]))


def test_what_does_not_fit_is_named(tmp_path):
    arrays, path = arrays_of(small()), tmp_path / "state.pt"
    write(path, {name: value for name, value in arrays.items() if name != "routings.1.W"})
    with pytest.raises(ValueError, match="no array 'routings.1.W'"):
        load_author_weights(small(), path)
    before = small()
    kept = [array(weight) for weight in before.weights]
    write(path, {**arrays, "routings.1.W": np.zeros((9, 5, 2, 2))})
    with pytest.raises(ValueError, match=r"'routings.1.W' has shape \(9, 5, 2, 2\).*\(9, 4, 2, 2\)"):
        load_author_weights(before, path)
    for weight, value in zip(before.weights, kept, strict=True):
        np.testing.assert_array_equal(array(weight), value)
    with pytest.raises(ValueError, match="'dense/kernel' has no counterpart"):
        author_name("dense/kernel")


def test_wrong_numbers_and_damaged_files_are_refused(tmp_path):
    path, arrays = tmp_path / "state.pt", arrays_of(small())
    whole = write(path, arrays).read_bytes()
    place = whole.index(np.ascontiguousarray(arrays["routings.1.B"]).tobytes()[:16]) + 5
    for content, words in (
        (whole[:500], "not a zip file"),
        (whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :], "Bad CRC-32"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path} can't be read as a PyTorch state dict: .*{words}"):
            load_author_weights(small(), path)
    for wrong, words in (
        (np.full((9, 4, 6, 1), np.nan), "'routings.1.B' has shape"),
        (np.full_like(arrays["routings.1.B"], np.inf), "'routings.1.B' of float32 has values that are no finite real"),
        (arrays["routings.1.B"].astype("int64"), "'routings.1.B' of int64 has values that are no finite real numbers"),
    ):
        with pytest.raises(ValueError, match=f"state.pt.* {words}"):
            load_author_weights(small(), write(path, {**arrays, "routings.1.B": wrong}))
