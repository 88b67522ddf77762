import re
import signal

import pytest
from small_runs import SHORT, TINY

from tf_capsules.runs import TrainingError, train
from tf_capsules.runs import results as module
from tf_capsules.runs.results import COLUMNS, append_row


def test_results_are_appended_and_other_columns_refused(tmp_path, run):
    path = tmp_path / "deep" / "results.csv"
    assert tuple(run.result) == COLUMNS
    append_row(path, run.result)
    append_row(path, run.result)
    lines = path.read_text().splitlines()
    assert len(lines) == 3 and lines[1] == lines[2] and lines[0].startswith("recipe,dataset,")
    with pytest.raises(TrainingError, match="has the columns"):
        append_row(path, {"other": 1})
    path.write_text(path.read_text().rstrip("\n"))  # as an editor may leave it
    append_row(path, run.result)
    assert path.read_text().splitlines() == [*lines, lines[1]]


def test_a_row_that_does_not_fit_on_the_disk_leaves_the_file_as_it_was(tmp_path, run):
    resource = pytest.importorskip("resource")
    path = tmp_path / "results.csv"
    append_row(path, run.result)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, limits[1]))
        with pytest.raises(OSError):
            append_row(path, run.result)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    append_row(path, run.result)
    assert path.read_bytes().startswith(before) and path.read_text().count("\n") == 3


def test_rows_of_several_processes_share_one_header(tmp_path, run):
    path, opened = tmp_path / "results.csv", []

    def lock_late(file):
        opened.append(file)
        if len(opened) == 1:  # meanwhile another process appends
            append_row(path, run.result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "lock", lock_late)
        append_row(path, run.result)
    header, *rows = path.read_text().splitlines()
    assert len(rows) == 2 and header not in rows


def test_a_finished_run_is_appended_where_it_is_not_yet(eager, tmp_path):
    recipe, files = TINY.replace(epochs=1), [tmp_path / "one.csv", tmp_path / "two.csv"]
    for resume, results in ((False, files[0]), (True, files[0]), (True, files[1]), (True, files[1])):
        train(recipe, tmp_path / "run", SHORT, resume, verbose=0, results=results)
        # As if the row had been written on another day by several devices.
        text = re.sub(r",\d{4}-\d\d-\d\d\b", ",2020-01-01", files[0].read_text())
        files[0].write_text(text.replace(",none,", ",mirrored x all,"))
    assert [path.read_text().count("\n") for path in files] == [2, 2]


def test_a_file_of_results_that_cannot_take_the_row_is_refused_before_training(eager, tmp_path):
    (tmp_path / "other.csv").write_text("other\n1\n")
    bad = {
        "other.csv": "has the columns \\['other'\\], not",
        "other.csv/x.csv": "can't be written",
        "": "can't be written",
    }
    for name, message in bad.items():
        with pytest.raises(TrainingError, match=message):
            train(TINY, tmp_path / "run", SHORT, results=tmp_path / name)
    for output, results in (("gs://bucket/run", None), (tmp_path / "run", "gs://bucket/new.csv")):
        with pytest.raises(TrainingError, match="gs:/+bucket/.* can't be written: give a path of this machine"):
            train(TINY, output, SHORT, results=results)
    assert not (tmp_path / "run").exists() and (tmp_path / "other.csv").read_text() == "other\n1\n"
    train(TINY.replace(epochs=1), tmp_path / "run", SHORT, verbose=0, results=tmp_path / "deep" / "new.csv")
    assert (tmp_path / "deep" / "new.csv").read_text().count("\n") == 2
