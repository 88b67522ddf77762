import dataclasses

import keras
import numpy as np
import pytest

from tf_capsules.runs import evaluate_ensemble, evaluate_runs, train


@pytest.mark.long
def test_probabilities_are_summed_over_random_crops(eager, views, tmp_path):
    run = train(views.replace(epochs=1), tmp_path / "run", verbose=0)
    scores, labels = 0, None
    for crop in range(3):
        batches = list(run.data.test(batch_size=64, crop=crop))
        scores = scores + keras.ops.convert_to_numpy(run.model(batches[0][0])["activations"])
        labels = np.asarray(batches[0][1])
    accuracy = (scores.argmax(-1) == labels).mean()
    measured = [evaluate_ensemble([run], crops=3)["accuracy"] for _ in range(2)]
    assert measured[0] == measured[1] == pytest.approx(accuracy, abs=1e-6)
    assert evaluate_ensemble([run])["accuracy"] == pytest.approx(run.evaluate()["accuracy"], abs=1e-6)
    assert evaluate_ensemble([run, run], "validation", 2).keys() == {"accuracy"}


def test_one_run_needs_no_list_and_none_is_told(run):
    (alone,), (listed,) = evaluate_runs(run), evaluate_runs([run])
    assert alone.values == listed.values
    assert alone.row["strategy"] == "none" and alone.row["peak_memory_mb"] == run.result["peak_memory_mb"]
    trained = {**run.result, "strategy": "mirrored x 2", "peak_memory_mb": 12}
    (other,) = evaluate_runs(dataclasses.replace(run, result=trained))
    assert (other.row["strategy"], other.row["peak_memory_mb"]) == ("mirrored x 2", 12)
    with pytest.raises(ValueError, match="Give one run or more"):
        next(evaluate_runs([]))
