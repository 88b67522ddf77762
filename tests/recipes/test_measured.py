import pytest

from tf_capsules import recipes
from tf_capsules.recipes import measured as module
from tf_capsules.recipes.measured import measured

MNIST = recipes.get("sabour2017-mnist")
ROWS = """recipe,dataset,note,settings,train_examples,epochs,batch_size,learning_rate,seed,metric,value
sabour2017-mnist,mnist,,,60000,5,128,0.001,0,accuracy,0.994
sabour2017-mnist,mnist,,,60000,20,128,0.001,0,accuracy,0.997
sabour2017-mnist,mnist,,,60000,20,128,0.001,1,accuracy,0.995
sabour2017-mnist,mnist,,,60000,20,128,0.001,1,accuracy,0.995
sabour2017-mnist,mnist,,,60000,60,128,0.001,0,accuracy,0.1
sabour2017-mnist,mnist,,stop_at 0.99,60000,10,128,0.001,0,accuracy,0.1
sabour2017-mnist,mnist,10 random crops,,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,90 of 10000 test examples,,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,x; trained on fashion_mnist,,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,weights with the best validation,,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,evaluated with 1 iteration,,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,familiar viewpoints,,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,fashion_mnist,,,60000,30,128,0.001,1,accuracy,0.9
sabour2017-mnist,mnist,weights elsewhere,,0,0,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,,weights a.h5; jit off,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,,iterations 1; jit off,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,,network types=4,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,,loss downweight=1,60000,40,128,0.001,1,accuracy,0.1
sabour2017-mnist,mnist,,warmup 0.1,60000,20,128,0.001,1,accuracy,0.1
sabour2017-mnist + sabour2017-mnist,mnist,,,60000,20 + 30,128,0.001,0 + 1,accuracy,0.1
"""


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_PLACES", [tmp_path / "nowhere", tmp_path])
    module._rows.cache_clear()
    yield tmp_path
    module._rows.cache_clear()


def test_the_longest_training_is_averaged_over_its_seeds(results):
    (results / "mnist.csv").write_text(ROWS)
    (results / "cost.csv").write_text("row,seconds\nsabour2017-mnist,3\n")
    found = measured(MNIST)
    assert (found.value, found.runs, found.epochs) == (pytest.approx(0.996), 2, 20)
    assert found.text() == "99.60%, mean of 2 runs, 20 of 50 epochs"
    assert found.text("top-5 error").startswith("0.40% top-5 error, ")
    assert found.text("error") == "0.40% error, mean of 2 runs, 20 of 50 epochs"
    assert measured(recipes.get("sabour2017-mnist-r1")) is None


def test_epochs_that_are_no_pass_over_the_data_say_so(results):
    header, *rows = ROWS.splitlines()
    name, data, _, rest = rows[0].split(",", 3)
    note = '"seed 1; epochs of 25,000 of 60,000 examples"'
    (results / "mnist.csv").write_text("\n".join([header, f"{name},{data},{note},{rest}"]))
    assert measured(MNIST).text().endswith(" of 50 epochs, each of 25,000 of 60,000 examples")


def test_a_damaged_file_of_results_is_named(results):
    (results / "mine.csv").write_text("recipe,settings,value\nsabour2017-mnist,,0.5\n")  # another kind of table
    assert measured(MNIST) is None
    module._rows.cache_clear()
    (results / "mnist.csv").write_text(ROWS.replace(",0.997", ",three"))
    with pytest.raises(ValueError, match="mnist.csv can't be read as a table of results: .*three"):
        measured(MNIST)


def test_a_run_that_stopped_early_was_measured_too(results):
    header, *rows = ROWS.splitlines()
    stopped = [row for row in rows if "stop_at" in row or "types=4" in row]
    (results / "mnist.csv").write_text("\n".join([header, *stopped]))
    assert len(stopped) == 2 and measured(MNIST).text() == "10.00%, 10 of 50 epochs"


def test_without_results_nothing_was_measured(results):
    assert measured(MNIST) is None
    results.rmdir()
    assert measured(MNIST) is None


def test_the_kept_results_are_found():
    found = measured(recipes.get("sabour2017-digits"))
    assert found.value > 0.98 and found.epochs == 30
