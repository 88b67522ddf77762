import json
import shutil

import numpy as np
import pytest
from small_runs import needs_tensorflow

from tf_capsules import cli


@needs_tensorflow
def test_predict_reads_image_files_and_names_what_it_cannot_read(trained, tmp_path, capsys):
    from PIL import ExifTags, Image
    from sklearn.datasets import load_digits

    folder, _ = trained
    image = np.round(load_digits().images[0] * 255 / 16).astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "zero.png")
    assert cli.main(["predict", str(folder), str(tmp_path / "zero.png")]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"{tmp_path / 'zero.png'}: ") and "probability 0." in said
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # as from a camera held upright: the picture needs a clockwise turn
    Image.fromarray(np.rot90(image)).save(tmp_path / "turned.png", exif=exif)
    assert cli.main(["predict", str(folder), str(tmp_path / "turned.png")]) == 0
    assert capsys.readouterr().out.partition(": ")[2] == said.partition(": ")[2]
    assert cli.main(["predict", str(folder), str(tmp_path / "none.png")]) == 2
    assert "There is no file" in capsys.readouterr().err
    assert cli.main(["predict", str(folder), str(tmp_path)]) == 2
    assert f"{tmp_path} is a folder" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["predict", str(folder), "x.png", "--weights", "last"])
    assert capsys.readouterr().err == "tf-capsules predict: unrecognized arguments: --weights last\n"
    (tmp_path / "letter.png").write_text("not an image")
    assert cli.main(["predict", str(folder), str(tmp_path / "letter.png")]) == 2
    error = capsys.readouterr().err
    assert "letter.png can't be read as an image" in error and error.count("\n") == 1
    assert cli.main(["predict", str(tmp_path), str(tmp_path / "zero.png")]) == 2
    assert "neither an exported SavedModel nor a run" in capsys.readouterr().err


@needs_tensorflow
def test_all_classes_above_the_threshold_are_named_where_several_are_recognised(trained, tmp_path, capsys):
    from PIL import Image

    folder = shutil.copytree(trained[0], tmp_path / "run")
    Image.fromarray(np.eye(8, dtype=np.uint8) * 255).save(tmp_path / "image.png")
    config = json.loads((folder / "config.json").read_text())
    config["data"]["class_names"] = [f"class {name}" for name in config["data"]["class_names"]]
    config["resolved"] |= {"metric": "exact_match", "threshold": 1e-9}
    (folder / "config.json").write_text(json.dumps(config))
    assert cli.main(["predict", str(folder), str(tmp_path / "image.png")]) == 0
    found = capsys.readouterr().out.strip().partition(": ")[2].split("; ")
    first, *others = (part.split(", probability ") for part in found)
    assert {name for name, _ in others} == {f"class {number}" for number in range(10)} - {f"class {first[0]}"}
    values = [float(value) for _, value in (first, *others)]
    assert values == sorted(values, reverse=True)
    config["resolved"]["threshold"] = 1.0
    (folder / "config.json").write_text(json.dumps(config))
    assert cli.main(["predict", str(folder), str(tmp_path / "image.png")]) == 0
    assert capsys.readouterr().out.strip().endswith(f": {found[0]}")
    (folder / "config.json").write_text("{}")  # of another version: the SavedModel is served without it
    assert cli.main(["predict", str(folder), str(tmp_path / "image.png")]) == 0
    assert capsys.readouterr().out.strip().endswith(f": {found[0]}")


@needs_tensorflow
def test_an_export_of_fewer_epochs_is_not_used(trained, tmp_path, capsys):
    folder = shutil.copytree(trained[0], tmp_path / "run")
    assert cli.main(["export", str(folder), str(folder / "saved_model")]) == 0
    assert (folder / "exported.json").read_text().split() == ["{", '"epochs":', "2", "}"]
    (folder / "exported.json").write_text('{"epochs": 0}')
    assert cli.main(["predict", str(folder), __file__]) == 2
    told = f"was exported after epoch 0, and trained to epoch 2 since: `tf-capsules export {folder}`"
    assert told in capsys.readouterr().err


@needs_tensorflow
def test_damaged_and_other_saved_models_are_named(trained, tmp_path, said):
    import tensorflow as tf

    folder, _ = trained
    (tmp_path / "zero.png").write_bytes(b"")
    variables = "variables/variables.data-00000-of-00001"
    for name, content in (("saved_model.pb", b"hello"), ("saved_model.pb", b""), (variables, bytes(1000))):
        copy = shutil.copytree(folder / "saved_model", tmp_path / "exported")
        (copy / name).write_bytes(content)
        error = said("predict", copy, tmp_path / "zero.png")
        assert f"{copy} is no SavedModel that can be served: " in error
        shutil.rmtree(copy)
    module = tf.Module()
    tf.saved_model.save(module, str(tmp_path / "empty"))
    module.double = tf.function(lambda x: {"y": 2 * x}, input_signature=[tf.TensorSpec([None])])
    tf.saved_model.save(module, str(tmp_path / "double"), module.double)
    for name, words in (("empty", "it lacks 'serving_default'"), ("double", "it answers y, not class and prob")):
        assert f"{tmp_path / name} is no SavedModel" in (error := said("predict", tmp_path / name, "x"))
        assert words in error
