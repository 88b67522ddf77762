import dataclasses

import keras
import numpy as np
import pytest
from small_runs import DIGITS, RECTIFIED, SHORT, SPREAD, TINY, plain_network

from tf_capsules import recipes
from tf_capsules.losses import MarginLoss, SpreadLoss
from tf_capsules.optimizers import CoupledSGD, RAdam, one_cycle
from tf_capsules.runs import Settings, TrainingError, load_run, train, training
from tf_capsules.runs.compiling import build_model, compile_learner
from tf_capsules.runs.data_spec import ImageSpec


def test_warm_up_and_momentum_follow_all_steps_of_the_run(rectified_run):
    run = rectified_run
    rate, beta_1 = one_cycle(1e-5, 0.002, 6, 0.25), run.model.optimizer.beta_1  # 2 epochs of 3 batches
    assert [row["learning_rate"] for row in run.history] == pytest.approx([float(rate(3)), float(rate(6))])
    assert beta_1.get_config() == one_cycle(0.81, 0.9, 6, 0.25, inverted=True).get_config()
    with pytest.raises(TrainingError, match="epochs 2, now 3: with a warm-up"):
        train(RECTIFIED.replace(epochs=3), run.folder, SHORT, resume=True)
    recipe = Settings(warmup=0.5).apply(TINY)
    assert (recipe.warmup, recipe.decay_steps, recipe.momentum_cycle) == (0.5, None, False)
    assert Settings(mixup=0.3).apply(TINY).mixup == 0.3


def test_a_rate_that_decays_over_the_run_ends_alike_however_long_it_is(eager, tmp_path):
    recipe = TINY.replace(decays=2, decay_steps=None)
    ends = [
        train(recipe.replace(epochs=epochs), tmp_path / str(epochs), SHORT, verbose=0).history[-1] for epochs in (1, 2)
    ]
    # The recorded rate is that of the next step.
    assert [row["learning_rate"] for row in ends] == pytest.approx([0.002 * 0.96**2] * 2)
    with pytest.raises(TrainingError, match="epochs 2, now 3: the learning rate falls over the whole run"):
        train(recipe.replace(epochs=3), tmp_path / "2", SHORT, resume=True)
    fixed = Settings(decay_steps=7).apply(recipe)
    assert (fixed.decays, fixed.decay_steps) == (None, 7)


def test_a_rate_below_the_floor_is_kept_or_refused():
    recipe = Settings(learning_rate=1e-9).apply(DIGITS)
    assert recipe.lowest_rate > 1e-9 and recipe.decays
    spec = ImageSpec("x", ("a", "b"), 100, 10, "", (16, 16, 1), (16, 16, 1))
    learner = compile_learner(build_model(recipe, spec), recipe, spec)
    assert float(learner.optimizer.learning_rate) == pytest.approx(1e-9)
    recipe = Settings(learning_rate=1e-9, warmup=0.5).apply(DIGITS)
    with pytest.raises(ValueError, match="With a warm-up --learning-rate must be above 1e-05. Received: 1e-09"):
        compile_learner(build_model(recipe, spec), recipe, spec)


def test_the_learning_rate_drops_at_shares_of_the_run(eager, tmp_path):
    recipe = TINY.replace(optimizer=CoupledSGD, learning_rate=0.02, decay_steps=None, drops=(0.4, 0.7), epochs=3)
    run = train(recipe, tmp_path / "run", SHORT, verbose=0)  # 3 epochs of 3 batches
    assert [row["learning_rate"] for row in run.history] == pytest.approx([0.02, 0.0002, 0.0002])  # of the next step
    schedule = run.model.optimizer._learning_rate
    # After 0.4 and 0.7 of the 9 steps: 4 steps have the first rate, 2 the second.
    assert [float(schedule(step)) for step in range(9)] == pytest.approx([0.02] * 4 + [0.002] * 2 + [0.0002] * 3)
    with pytest.raises(TrainingError, match="epochs 3, now 4: the learning rate drops .*; start a new run"):
        train(recipe.replace(epochs=4), run.folder, SHORT, resume=True)
    with pytest.raises(TrainingError, match="--decay-steps 9 and the drops of .* exclude each other"):
        train(recipe, tmp_path / "other", Settings(decay_steps=9))
    warmed = Settings(warmup=0.5).apply(recipe)
    assert (warmed.warmup, warmed.drops) == (0.5, ())


@pytest.mark.long
def test_the_margin_follows_all_steps_of_the_run(eager, tmp_path, monkeypatch):
    recipe = SPREAD.replace(batch_size=10)
    run = train(recipe, tmp_path / "run", Settings(train_limit=60, test_limit=70), verbose=0)
    (margin,) = run.model.growing_margins  # 2 epochs of 6 batches
    assert (margin.schedule, margin.scale, int(keras.ops.convert_to_numpy(margin.steps))) == ("sigmoid", 2, 12)
    assert run.result["parameters"] == TINY.model((8, 8, 1), 10, **TINY.model_options).count_params()
    monkeypatch.setattr(recipes, "get", lambda name: recipe)
    assert load_run(run.folder).evaluate()["loss"] == pytest.approx(run.result["test_loss"], abs=1e-5)
    with pytest.raises(TrainingError, match="epochs 2, now 3: with a growing margin"):
        train(recipe.replace(epochs=3), run.folder, run.settings, resume=True)


def test_mixup_is_asked_of_the_training_stream_alone(eager, tmp_path, monkeypatch):
    asked, load = {}, training.load_data

    def recorded(name, stream):
        return lambda **options: asked.update({name: options}) or stream(**options)

    def load_data(*arguments):
        data = load(*arguments)
        return dataclasses.replace(
            data, **{name: recorded(name, getattr(data, name)) for name in ("train", "validation")}
        )

    monkeypatch.setattr(training, "load_data", load_data)
    recipe, settings = (
        TINY.replace(model_options=dict(decoder_units=None), epochs=1),
        Settings(train_limit=50, test_limit=20),
    )
    mixed = train(recipe, tmp_path / "run", dataclasses.replace(settings, mixup=0.4), verbose=0)
    assert asked["train"]["mixup"] == (0.4, 10) and "mixup" not in asked["validation"]
    assert mixed.result["settings"] == "mixup 0.4; train_limit 50"
    # Labels are class numbers for both accuracies, and Keras has a separate metric for these.
    images, labels = mixed.examples(20)
    correct = keras.ops.convert_to_numpy(mixed.model(images)["activations"]).argmax(-1) == labels
    assert mixed.result["value"] == pytest.approx(correct.mean(), abs=1e-6)
    plain = train(recipe, tmp_path / "plain", settings, verbose=0)
    assert "mixup" not in asked["train"] and plain.history[0]["loss"] != mixed.history[0]["loss"]


def test_a_plain_network_learns_from_mixed_examples(eager, tmp_path):
    recipe = TINY.replace(
        model=plain_network,
        model_options={},
        loss=keras.losses.SparseCategoricalCrossentropy,
        learning_rate=1e-9,  # so the weights stay as they are
        decay_steps=None,
        epochs=1,
        mixup=0.4,
    )
    run = train(recipe, tmp_path, Settings(train_limit=50, test_limit=20, batch_size=50), verbose=0)
    ((images, labels),) = run.data.train(training=True, batch_size=50, mixup=(0.4, 10))
    rows = keras.ops.convert_to_numpy(labels["label"])
    assert ((rows > 0.01) & (rows < 0.99)).any()
    losses = -np.sum(rows * np.log(run.model.predict(images, verbose=0)), axis=1)
    assert run.history[0]["loss"] == pytest.approx(losses.mean(), rel=1e-4)
    images, labels = run.examples(20)
    scores = run.model.predict(images, verbose=0)
    for measured in run.history[0]["val_accuracy"], run.result["value"], run.evaluate()["accuracy"]:
        assert measured == pytest.approx((scores.argmax(-1) == labels).mean(), abs=1e-6)
    own = -np.log(scores[np.arange(20), labels]).mean()
    assert run.evaluate()["loss"] == pytest.approx(own, rel=1e-4)
    numbers = run.model.evaluate(images, labels, verbose=0, return_dict=True)
    assert numbers == pytest.approx(run.evaluate(), rel=1e-5)
    top = train(recipe.replace(metric="top_5"), tmp_path / "top", run.settings, verbose=0)
    right = [label in np.argsort(row)[-5:] for row, label in zip(scores, labels, strict=True)]
    assert top.result["value"] == pytest.approx(np.mean(right), abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict(margin_schedule="linear"), "margin_schedule 'linear' is for SpreadLoss, not MarginLoss"),
        (dict(warmup=0.1), "decay_steps 40 and warmup 0.1 exclude each other"),
        (dict(decays=9), "decays 9 and decay_steps 40 exclude each other"),
        (dict(drops=(0.5,)), r"decay_steps 40 and drops \(0.5,\) exclude each other"),
        (dict(drops=(0.5, 0.2), decay_steps=None), r"between 0 and 1 and in order, not \(0.5, 0.2\)"),
        (dict(momentum_cycle=True), "momentum_cycle .* needs warmup"),
        (dict(threshold=0.5), "threshold 0.5 is for the metric exact_match, not accuracy"),
        (dict(mixup=0.2, metric="exact_match"), "mixup 0.2 is for one class an image"),
        (dict(mixup=0.2, loss=SpreadLoss), "mixup 0.2 does not go with SpreadLoss"),
    ],
)
def test_a_recipe_s_values_must_agree(changes, message):
    with pytest.raises(ValueError, match=message):
        TINY.replace(**changes)


def test_the_cycle_of_beta_1_is_switched_off_and_on(eager, tmp_path):
    text = recipes.get("heinsen2019-sst5")
    assert text.momentum_cycle and not Settings(momentum_cycle=False).apply(text).momentum_cycle
    settings = dataclasses.replace(SHORT, epochs=1, momentum_cycle=False)
    run = train(RECTIFIED, tmp_path / "run", settings, verbose=0)
    assert run.model.optimizer.beta_1 == RAdam(0.1).beta_1 and "momentum_cycle False" in run.result["settings"]
    plain = RECTIFIED.replace(momentum_cycle=False)
    run = train(plain, tmp_path / "other", dataclasses.replace(settings, momentum_cycle=True), verbose=0)
    assert run.model.optimizer.beta_1.get_config() == one_cycle(0.81, 0.9, 3, 0.25, inverted=True).get_config()
    with pytest.raises(TrainingError, match="momentum_cycle follows the warm-up .* it needs warmup"):
        train(TINY, tmp_path / "third", Settings(momentum_cycle=True))


def test_arguments_of_the_loss_are_set_and_told(eager, tmp_path, monkeypatch):
    settings = dataclasses.replace(SHORT, epochs=1, loss={"variant": "code", "down_weight": 0.25})
    run = train(TINY, tmp_path / "run", settings, verbose=0)
    assert run.model.loss.get_config() == MarginLoss(variant="code", down_weight=0.25).get_config()
    assert "loss down_weight=0.25; loss variant=code" in run.result["settings"]
    monkeypatch.setattr(recipes, "get", lambda name: TINY)
    assert load_run(run.folder).model.loss.variant == "code"
    other = settings.apply(TINY)
    assert other.replace(loss_options={"absent": 0.2}).loss_options == {**settings.loss, "absent": 0.2}
    assert other.replace(loss=SpreadLoss).loss_options == {}


def test_feedback_units_have_the_dtype_of_the_network():
    recipe = recipes.get("li2018-cifar10-feedback").replace(model_options=dict(types=4, layers=(1, 1)))
    spec = ImageSpec("x", ("a", "b"), 100, 10, "", (8, 8, 3), (8, 8, 3))
    learner = compile_learner(build_model(recipe, spec, "mixed_float16"), recipe, spec)
    assert isinstance(learner.optimizer, keras.optimizers.LossScaleOptimizer)
    assert {unit.compute_dtype for unit in learner.units} == {"float16"}
    assert keras.config.dtype_policy().name == "float32"


def test_arguments_of_feedback_units_are_set():
    settings = Settings(feedback={"weight": 5, "vanilla": True}, network={"types": 3, "layers": [1]})
    recipe = recipes.get("li2018-cifar10-feedback")
    settings.check(recipe)
    recipe, spec = settings.apply(recipe), ImageSpec("toys", ("a", "b"), 9, 4, "", (8, 8, 3), (8, 8, 3))
    learner = compile_learner(build_model(recipe, spec), recipe, spec)
    assert learner.weight == 5 and {unit.groups for unit in learner.units} == {1}


@pytest.mark.parametrize(
    ("recipe", "settings", "message"),
    [
        (
            DIGITS,
            dict(feedback={"weight": 5}),
            "--feedback weight=5 is for recipes with feedback units; sabour2017-dig",
        ),
        (DIGITS, dict(loss={"varient": "code"}), "--loss varient=code: MarginLoss has no such .* it has absent, down_"),
        (
            recipes.get("li2018-cifar10-feedback"),
            dict(feedback={"wieght": 5}),
            "--feedback wieght=5: feedback has no such .* it has cost, critic, .*weight",
        ),
        (DIGITS, dict(network={"reconstruction_weight": "nan"}), "reconstruction_weight must be a number. .*: 'nan'"),
        (DIGITS, dict(network={"leaky": "yes"}), "--network leaky must be true or false. Received: 'yes'"),
        (DIGITS, dict(network={"kernel_size": ["a"]}), r"must be a whole number or a list .* Received: \['a'\]"),
        (DIGITS, dict(loss={"present": "x"}), "--loss present must be a number. Received: 'x'"),
        (
            recipes.get("li2018-cifar10-resnet"),
            dict(loss={"from_logits": "x"}),
            "--loss from_logits must be true or false. Received: 'x'",
        ),
        (
            recipes.get("li2018-cifar10-feedback"),
            dict(feedback={"epsilon": "x"}),
            "--feedback epsilon must be a number. Received: 'x'",
        ),
        (SPREAD, dict(loss={"margin": 0.5}), "--loss margin=0.5: the margin of sabour2017-digits grows"),
    ],
)
def test_arguments_that_are_not_there_are_named(recipe, settings, message):
    with pytest.raises(TrainingError, match=message):
        Settings(**settings).check(recipe)
