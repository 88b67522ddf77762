import json
import shutil

import pytest
from small_runs import needs_tensorflow

from tf_capsules import cli


@pytest.mark.long
@needs_tensorflow
def test_export_to_litert_and_to_uint8_needs_no_data(trained, tmp_path, no_data):
    folder, _ = trained
    assert cli.main(["export", str(folder), str(tmp_path / "m.tflite")]) == 0
    assert (tmp_path / "m.tflite").stat().st_size > 1000
    assert cli.main(["export", str(folder), str(tmp_path / "n.tflite"), "--format", "saved_model"]) == 2
    assert cli.main(["export", str(folder), str(tmp_path / "served"), "--default", "uint8"]) == 0
    import tensorflow as tf

    served = tf.saved_model.load(str(tmp_path / "served")).signatures["serving_default"]
    assert served.structured_input_signature[1]["images"].dtype == tf.uint8


@needs_tensorflow
def test_a_run_in_half_precision_is_converted_in_float32(trained, tmp_path, no_data):
    folder = shutil.copytree(trained[0], tmp_path / "half")
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["dtype"] = "mixed_bfloat16"
    (folder / "config.json").write_text(json.dumps(config))
    assert cli.main(["export", str(folder), str(tmp_path / "half.tflite")]) == 0
    assert cli.main(["export", str(trained[0]), str(tmp_path / "full.tflite")]) == 0
    assert (tmp_path / "half.tflite").read_bytes() == (tmp_path / "full.tflite").read_bytes()


def test_shipped_weights_are_exported_with_the_names_of_the_data_that_are_named(tmp_path, said):
    command = ("export", "mazzia2021-mnist-short", tmp_path / "m.tflite", "--weights", "mazzia2021-mnist")
    assert f"is not in {tmp_path / 'sets'}" in said(*command, "--data-dir", tmp_path / "sets")


def test_the_target_may_stand_behind_options(tmp_path, capsys):
    command = ["export", "sabour2017-digits", "--weights", "sabour2017-digits"]
    target = str(tmp_path / "m.keras")
    assert cli.main([*command, target]) == 2
    assert f"Received: {target}" in capsys.readouterr().err
    for given, words in ((["a", "b"], "a b"), (["--quick"], "--quick")):
        with pytest.raises(SystemExit):
            cli.main([*command, *given])
        assert capsys.readouterr().err == f"tf-capsules export: unrecognized arguments: {words}\n"


def test_arguments_of_another_kind_are_named(trained, tmp_path, said):
    run = trained[0]
    assert f".tflite or .onnx. Received: {tmp_path / 'm.keras'}" in said("export", run, tmp_path / "m.keras")
    (tmp_path / "m.keras").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    for given, words in (
        (tmp_path / "m.keras", "m.keras is not the folder of a run: it is a file (a Keras model is exported in Python"),
        (tmp_path, f"is not the folder of a run: it has no config.json. Runs are in {tmp_path / 'run'}."),
        (tmp_path / "none", "none is not the folder of a run: there is no such folder."),
    ):
        assert words in said("export", given)


@needs_tensorflow
def test_files_that_are_no_exported_models_are_kept(trained, tmp_path, said, no_data):
    mine = tmp_path / "m.tflite"
    mine.write_text("mine")
    assert "m.tflite is not overwritten: it exists, and is no LiteRT model" in said("export", trained[0], mine)
    assert "no folder that may be written to" in said("export", trained[0], mine / "below")
    assert mine.read_text() == "mine"


@pytest.mark.long
@needs_tensorflow
def test_versions_and_warmup_requests_are_for_saved_models(trained, tmp_path, capsys, no_data):
    run, target = str(trained[0]), tmp_path / "model"
    assert cli.main(["export", run, str(target), "--version", "next", "--warmup"]) == 0
    assert cli.main(["export", run, str(target), "--version", "7"]) == 0
    assert {path.name for path in target.iterdir()} == {"1", "7"}
    assert (target / "1" / "assets.extra" / "tf_serving_warmup_requests").exists()
    assert not (target / "7" / "assets.extra").exists()
    for arguments, message in (
        ([str(target), "--version", "7"], "7 exists already: give a new version another number"),
        ([str(target), "--version", "last"], "`version` must be a whole number of at least 1. Received: 'last'"),
        ([str(tmp_path / "m.tflite"), "--warmup"], "--warmup is for SavedModels. Received: --format litert"),
    ):
        capsys.readouterr()
        assert cli.main(["export", run, *arguments]) == 2
        assert message in capsys.readouterr().err


@needs_tensorflow
def test_export_to_onnx_needs_no_data(trained, tmp_path, no_data):
    for package in ("tf2onnx", "onnxruntime"):
        pytest.importorskip(package)
    import onnxruntime

    assert cli.main(["export", str(trained[0]), str(tmp_path / "m.onnx")]) == 0
    (images,) = onnxruntime.InferenceSession(str(tmp_path / "m.onnx")).get_inputs()
    assert images.name == "images" and images.shape[1:] == [8, 8, 1]
