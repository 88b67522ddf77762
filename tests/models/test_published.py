"""The networks with the author's weights answer as his own code did."""

import pathlib

import numpy as np
import pytest
from backend import array

from tf_capsules.models.heinsen2019 import ImageCapsNet, TextCapsNet
from tf_capsules.models.published import author_name, load_author_weights

FOLDER = pathlib.Path(__file__).parents[2].parent / "shared" / "oracles" / "heinsen_pretrained"
needs_weights = pytest.mark.skipif(not FOLDER.exists(), reason="the author's published weights are not at hand")


@needs_weights
@pytest.mark.parametrize("name, classes", [("smallNORB", 5), ("SST5R", 5), ("SST2R", 2)])
def test_answers_equal_the_author_s(name, classes):
    path = FOLDER / f"{name}.npz"
    case = np.load(path)
    if name == "smallNORB":
        model, x = ImageCapsNet(weights=path), case["images"].astype("float32") / 255
    else:
        model = TextCapsNet(classes=classes, norm="post", weights=path)
        x = {"embeddings": case["embeddings"].astype("float32"), "mask": case["mask"]}
    outputs = model(x)
    for ours, his in (("activations", "scores"), ("poses", "poses"), ("variances", "variances")):
        np.testing.assert_allclose(array(outputs[ours]), case[his], rtol=1e-4, atol=1e-5, err_msg=his)


def small():
    return TextCapsNet(layers=3, width=8, classes=4, dim=6, parts=9, norm="post")


def arrays_of(model):
    """The weights as an author would have saved them."""
    arrays = {}
    for weight in model.weights:
        name, value = author_name(weight.path), array(weight)
        arrays[name] = value.T if name.endswith("parts.0.weight") else value
    return arrays


def test_named_arrays_are_read(tmp_path):
    first, second = small(), small()
    np.savez(tmp_path / "author.npz", **arrays_of(first), state=np.zeros(3))
    load_author_weights(second, tmp_path / "author.npz")
    for weight, other in zip(first.weights, second.weights, strict=True):
        np.testing.assert_array_equal(array(weight), array(other))
    np.savez(tmp_path / "prefixed.npz", **{f"weight/{name}": value for name, value in arrays_of(first).items()})
    again = TextCapsNet(layers=3, width=8, classes=4, dim=6, parts=9, norm="post", weights=tmp_path / "prefixed.npz")
    np.testing.assert_array_equal(array(again.weights[0]), array(first.weights[0]))


def test_what_does_not_fit_is_named(tmp_path):
    arrays = arrays_of(small())
    missing = {name: value for name, value in arrays.items() if name != "routings.1.W"}
    np.savez(tmp_path / "author.npz", **missing)
    with pytest.raises(ValueError, match="no array 'routings.1.W'"):
        load_author_weights(small(), tmp_path / "author.npz")
    before = small()
    kept = [array(weight) for weight in before.weights]
    np.savez(tmp_path / "author.npz", **{**arrays, "routings.1.W": np.zeros((9, 5, 2, 2))})
    with pytest.raises(ValueError, match=r"'routings.1.W' has shape \(9, 5, 2, 2\).*\(9, 4, 2, 2\)"):
        load_author_weights(before, tmp_path / "author.npz")
    for weight, value in zip(before.weights, kept, strict=True):
        np.testing.assert_array_equal(array(weight), value)
    with pytest.raises(ValueError, match="'dense/kernel' has no counterpart"):
        author_name("dense/kernel")


def test_damaged_archives_and_pickles_are_refused(tmp_path):
    path, arrays = tmp_path / "author.npz", arrays_of(small())
    np.savez(path, **arrays)
    whole = path.read_bytes()
    for content, words in ((whole[:500], "no .npz archive"), (whole[:150] + b"?" + whole[151:], "Bad CRC-32")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=f"{path} can't be read as a NumPy archive: .*{words}"):
            load_author_weights(small(), path)
    for wrong, words in (
        (np.array([print], object), "its array 'routings.1.B': Object arrays cannot be loaded"),
        (np.full((9, 4, 6, 1), np.nan), "'routings.1.B' has shape"),
        (np.full_like(arrays["routings.1.B"], np.inf), "'routings.1.B' of float32 has values that are no finite real"),
        (arrays["routings.1.B"].astype(complex), "'routings.1.B' of complex128 has values that are no finite real"),
    ):
        np.savez(path, **{**arrays, "routings.1.B": wrong})
        with pytest.raises(ValueError, match=f"author.npz.* {words}"):
            load_author_weights(small(), path)
