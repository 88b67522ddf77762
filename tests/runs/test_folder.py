import pytest

from tf_capsules.runs import RunFolder, TrainingError


def test_checkpoints_are_ordered_by_their_number(tmp_path):
    for name in ("last-10000", "last-9999", "last-0002", "last-3", "best"):
        (tmp_path / f"{name}.weights.h5").touch()
    folder = RunFolder(tmp_path)
    assert folder.checkpoints() == [2, 9999, 10000]
    assert folder.weights().name == "last-10000.weights.h5" and folder.weights(2).name == "last-0002.weights.h5"
    with pytest.raises(TrainingError, match="no weights of epoch 3, but of: 2, 9999, 10000[.]"):
        folder.weights(3)
    with pytest.raises(
        TrainingError, match='weights are "last", "best" or the number of an epoch. Received: \'final\''
    ):
        folder.weights("final")


def test_the_last_checkpoint_is_left_and_is_the_best_if_it_has_the_highest_value(tmp_path):
    for name in ("last-10000", "last-9999", "best"):
        (tmp_path / f"{name}.weights.h5").write_text(name)
    folder, best = RunFolder(tmp_path), tmp_path / "best.weights.h5"
    folder.keep_best_and_last([{"value": 0.5}, {"value": 0.4}], "value", keep_all=True)
    assert len(folder.checkpoints()) == 2 and best.read_text() == "best"
    folder.keep_best_and_last([{"value": 0.5}, {"value": 0.5}], "value", keep_all=False)
    assert best.read_text() == "last-10000"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.weights.h5", "last-10000.weights.h5"]


def test_one_process_at_a_time_trains_in_a_folder(tmp_path):
    pytest.importorskip("fcntl")
    folder = RunFolder(tmp_path / "run")
    for _ in range(2):  # the first time leaves nothing that stands in the way of the second
        folder.path.mkdir(exist_ok=True)
        (folder.path / ".part.1f.last-0002.weights.h5").touch()  # of a process that was killed
        with folder.held():
            with pytest.raises(TrainingError, match="Another process is training in .*run"), folder.held():
                pass
    assert not list(folder.path.iterdir())
