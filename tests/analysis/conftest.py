import numpy as np
import pytest
from matplotlib.figure import Figure


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
