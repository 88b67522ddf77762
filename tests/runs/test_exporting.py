import pytest
from small_runs import needs_tensorflow

from tf_capsules.runs.exporting import export_run, plan_export, serve_example


@pytest.mark.parametrize(
    ("arguments", "format", "target"),
    [
        ({}, "saved_model", None),
        ({"target": "m"}, "saved_model", "m"),
        ({"target": "m.tflite"}, "litert", "m.tflite"),
        ({"target": "m.onnx"}, "onnx", "m.onnx"),
        ({"target": "m.TFLITE"}, "litert", "m.TFLITE"),
        ({"format": "litert"}, "litert", None),
        ({"target": "m.v2", "format": "embeddings"}, "embeddings", "m.v2"),
        ({"target": "m", "version": "next"}, "saved_model", "m/1"),
        ({"target": "m", "version": 7}, "saved_model", "m/7"),
    ],
)
def test_the_format_follows_the_target(tmp_path, monkeypatch, arguments, format, target):
    monkeypatch.chdir(tmp_path)
    found, path = plan_export(**arguments)
    assert (found, None if path is None else str(path)) == (format, target)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"target": "m.keras"}, "file that ends in .tflite or .onnx. Received: m.keras"),
        ({"target": "m.onnx", "format": "litert"}, "--format litert does not write a file that ends in .onnx"),
        ({"format": "torch"}, "--format is one of saved_model, litert, onnx, embeddings. Received: 'torch'"),
        ({"target": "gs://bucket/m"}, "gs://bucket/m can't be written"),
        ({"version": "next"}, "--version needs TARGET"),
        ({"target": "m.onnx", "version": 3}, "--version is for SavedModels. Received: --format onnx"),
        ({"target": "m.tflite", "warmup": True}, "--warmup is for SavedModels. Received: --format litert"),
        ({"format": "onnx", "default": "uint8"}, "--default is for SavedModels. Received: --format onnx"),
    ],
)
def test_arguments_that_do_not_go_together_are_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        plan_export(**arguments)


@needs_tensorflow
def test_a_run_is_exported_as_its_target_says(run, tmp_path):
    assert export_run(run, tmp_path / "m.tflite") == tmp_path / "m.tflite"
    assert (tmp_path / "m.tflite").read_bytes()[4:8] == b"TFL3"
    with pytest.raises(ValueError, match="--format embeddings is for texts. Received: sabour2017-digits"):
        export_run(run, format="embeddings")


@pytest.mark.long
@needs_tensorflow
def test_an_example_is_served_by_an_export_of_either_default(run, tmp_path):
    for default in ("float32", "uint8"):
        by, answer = serve_example(run, export_run(run, tmp_path / default, default=default))
        probabilities = run.model.predict(run.examples(1)[0], verbose=0)["activations"][0]
        assert by == "TensorFlow" and answer["class"] == probabilities.argmax()
        assert answer["probability"] == pytest.approx(probabilities.max(), abs=1e-3)
