import numpy as np
import pytest
from analysis.capsnets import small_capsnet, small_images
from analysis.classifiers import KERNEL, linear
from matplotlib.figure import Figure

from tf_capsules.analysis.input_gradient import InputGradient


@pytest.fixture(scope="module")
def model():
    return small_capsnet()


@pytest.fixture(scope="module")
def images():
    return small_images()


@pytest.fixture(scope="module")
def gradient():
    return InputGradient(linear(KERNEL), batch_size=3)


@pytest.fixture(scope="module")
def labels():
    return np.array([0, 1, 2, 3, 0, 2, 1])


@pytest.fixture
def saved(tmp_path):
    """Saves a figure and checks that a picture of its size came out."""

    def save(figure):
        assert isinstance(figure, Figure)
        figure.savefig(tmp_path / "figure.png")
        content = (tmp_path / "figure.png").read_bytes()
        assert content.startswith(b"\x89PNG")
        width, height = np.frombuffer(content[16:24], ">u4")
        np.testing.assert_allclose((width, height), figure.get_size_inches() * 150, atol=1)
        return figure

    return save
