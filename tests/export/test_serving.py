import importlib.util

import keras
import pytest
from served import make_plain

from tf_capsules import export

if keras.backend.backend() != "tensorflow":
    pytest.skip("export runs on TensorFlow", allow_module_level=True)

import tensorflow as tf  # noqa: E402


def test_versions_are_numbered_and_never_replaced(tmp_path):
    folder = tmp_path / "deep" / "model"
    assert export.version_folder(folder) == folder / "1" and not folder.exists()
    for name in ("2", "010", ".11.123.partial", "notes"):
        (folder / name).mkdir(parents=True)
    assert export.version_folder(folder) == folder / "11"
    assert export.version_folder(folder, 7) == folder / "7"
    for version, message in ((10, "10 exists already"), (0, "Received: 0"), ("two", "Received: 'two'")):
        with pytest.raises(ValueError, match=message):
            export.version_folder(folder, version)
    (folder / "2" / "saved_model.pb").touch()
    with pytest.raises(ValueError, match="2 is a SavedModel; versions of one go into a folder of their own"):
        export.version_folder(folder / "2")


def test_warmup_requests_are_written_with_the_rest_or_not_at_all(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow_serving.apis", reason="needs the package tensorflow-serving-api")
    model = make_plain()
    target = export.export_saved_model(model, tmp_path / "model", warmup=True)
    warmup = target / "assets.extra" / "tf_serving_warmup_requests"
    assert warmup.stat().st_size > 500
    tf.saved_model.load(str(target))
    export.export_saved_model(model, target)
    assert not warmup.exists()
    monkeypatch.setattr(export.serving, "_one_example", lambda spec: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export.export_saved_model(model, tmp_path / "other", warmup=True)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_without_their_package_warmup_requests_say_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="package tensorflow-serving-api, which is not installed"):
        export.export_saved_model(make_plain(), tmp_path / "model", warmup=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["run[1]", "a [b]/model", r"back\slash"])
def test_a_place_that_tensorflow_takes_for_a_pattern_is_refused(tmp_path, name):
    with pytest.raises(ValueError, match="brackets or backslashes: .*"):
        export.export_saved_model(make_plain(), tmp_path / name)
    assert not list(tmp_path.iterdir())
