"""Training a recipe into a run folder."""

import contextlib
import importlib.util
import sys

import keras

from tf_capsules import recipes
from tf_capsules.lazy import tf
from tf_capsules.models.weights.keras_file import load_random_states
from tf_capsules.runs.callbacks import Progress, Recorder, diagnostics
from tf_capsules.runs.compiling import build_model, compile_learner, compile_model, for_model, load_checkpoint
from tf_capsules.runs.configuration import check_folder, check_same_data, configuration
from tf_capsules.runs.data import load_data
from tf_capsules.runs.distributed import join_processes, mirrored_strategy
from tf_capsules.runs.errors import TrainingError, reported
from tf_capsules.runs.figures import check_names
from tf_capsules.runs.folder import RunFolder
from tf_capsules.runs.machine import cpu_hints
from tf_capsules.runs.results import append_row, check_row, describe_result, has_row, of_process
from tf_capsules.runs.run import Run
from tf_capsules.runs.settings import DECLARED, Settings

_FEW_STEPS = 5  # an epoch


def train(recipe, output, settings=None, resume=False, verbose="auto", results=None):
    """Trains a recipe, keeps all of it in a run folder, and returns it as a `Run`.

    Args:
        recipe: a `Recipe`, or the name of one.
        output: the run folder; made if it is absent. A run there that has finished no epoch is replaced.
        settings: `Settings`; None for the recipe's own values.
        resume: go on with the run in the folder, from its last finished epoch. The settings must be the same, except
            those of folders, caches, downloads and processes, `stop_at`, `diagnostics`, and the number of epochs if no
            schedule depends on it. Weights end up the same as those of an uninterrupted run: bitwise with
            `deterministic`, for texts only if the cache is used as before. If no epoch is finished, a line says so and
            a new run starts; if all epochs are done, nothing is trained.
        verbose: as for `fit`: "auto" shows a progress bar on a terminal; elsewhere a line an epoch, and one a minute
            with the time left.
        results: a CSV file to which the row of results is appended; None for none.

    Raises:
        TrainingError: what was asked for can't work, the folder holds another run, or the loss is not finite.

    With `deterministic` all of this process stays deterministic on TensorFlow, which can't be undone there.
    """
    settings = settings or Settings()
    recipe = reported(recipes.get, recipe) if isinstance(recipe, str) else recipe
    settings.check(recipe)
    settings = settings.with_absolute_paths()
    recipe = settings.apply(recipe)
    reported(check_names, recipe.figures)
    folder = RunFolder(output)
    group = join_processes(settings, recipe.batch_size)
    asked = configuration(recipe, settings)
    shared = {name: value for name, value in asked["settings"].items() if not DECLARED[name].outside_run}
    group.check_equal(recipe=asked["recipe"], settings=shared, resolved=asked["resolved"])
    config, done = group.run_on_first(check_folder, folder, asked, recipe, resume)
    strategy = mirrored_strategy(settings.devices, recipe.batch_size) if settings.strategy == "mirrored" else None
    keras.utils.set_random_seed(settings.seed)
    if settings.deterministic and keras.backend.backend() == "tensorflow":
        tf.config.experimental.enable_op_determinism()
    data = group.run_on_all(reported, load_data, recipe, settings)
    spec = data.spec
    # If TensorFlow is installed, it makes the batches, in another random order.
    group.check_equal(data=spec.to_json(), packages={"tensorflow": importlib.util.find_spec("tensorflow") is not None})
    verbose = verbose if group.index == 0 else 0
    if verbose:
        _report_start(folder, recipe, settings, data)
    if done:
        check_same_data(folder, config["data"], spec, renamed=settings.data is not None)
    config["data"] = spec.to_json()
    history = group.run_on_first(folder.history)[:done]
    reached = bool(history) and settings.stop_at is not None and history[-1][f"val_{recipe.metric}"] >= settings.stop_at
    with group.scope(), strategy.scope() if strategy else contextlib.nullcontext():
        model = reported(build_model, recipe, spec, settings.dtype, not done)
        learner = reported(compile_learner, model, recipe, spec, settings.jit)
        if done:
            _load_last_checkpoint(learner, folder, group)
        elif settings.jit == "on" and not learner.jit_compile:
            reason = "--deterministic" if settings.deterministic else "a layer that TensorFlow's XLA can't train"
            raise TrainingError(f"--jit on does not go with {reason}.")
    if resume and verbose:
        _report_resumed(folder, done, recipe.epochs, reached)
    group.run_on_first(lambda: results is None or check_row(results))  # all call it: `results` may be given to one
    # Each evaluation makes its batches again. They are always the same.
    batches = dict(batch_size=recipe.batch_size)
    batches |= {"pad": True, "part": group.part} if group.part else {"pad": strategy is not None}
    fit = None if done == recipe.epochs or reached else _prepared_fit(recipe, settings, data, model, done, batches)
    tests = None if data.validation is data.test else for_model(model, data.test(**batches))
    measures = diagnostics(folder, model, data) if fit and settings.diagnostics else []
    # The folder is taken only now that data and model are there, so that a failed start leaves nothing behind.
    writes = group.index == 0
    measured = None
    with contextlib.ExitStack() as stack:
        group.run_on_all(_take, folder if writes else None, done, stack)
        stack.enter_context(group.scope())
        if writes:
            folder.write_json("config.json", config)
            if done:
                folder.keep_best_and_last(history, f"val_{recipe.metric}", settings.keep_epochs)
        if fit:
            stops = settings.stop_at, settings.keep_epochs
            recorder = Recorder(folder if writes else None, recipe.metric, history, done, *stops)
            callbacks = [recorder, *measures]
            if writes and importlib.util.find_spec("tensorflow"):
                callbacks.append(keras.callbacks.TensorBoard(folder.path / "tensorboard", write_graph=False))
            if verbose == "auto" and not sys.stdout.isatty():  # a line an epoch and one a minute, no progress bar
                callbacks.append(Progress(fit["steps_per_epoch"]))
                verbose = 2
            learner.fit(**fit, callbacks=callbacks, verbose=verbose)
            history = recorder.rows
        if tests is not None:
            measured = model.evaluate(tests, verbose=0, return_dict=True)
    if group.part:  # a copy that this process can call by itself
        trained, model = model, build_model(recipe, spec, settings.dtype, initial_weights=False)
        compile_model(model, recipe, spec, settings.jit)
        model.set_weights(trained.get_weights())
    rows = [
        describe_result(recipe, settings, tested, model, history, measured if part == "test" else None)
        for part, tested in data.evaluated
    ]
    if writes:
        before = {} if fit else folder.result()
        if before.get("epochs") == len(history):  # this process has trained nothing
            rows = [row | of_process(before) for row in rows]
        folder.write_json("result.json", rows[-1])
        for row in rows if results is not None else ():
            if fit or not has_row(results, row):
                append_row(results, row)
    return Run(folder.path, recipe, settings, recipe, spec, lambda: data, model, history, rows[-1])


def _load_last_checkpoint(learner, folder, group):
    """Loads weights, optimizer and random states after the last finished epoch, in all processes."""
    with group.first_weights(folder.weights() if group.index == 0 else None) as path:
        kept = folder.checkpoints()[:-1]
        load_checkpoint(learner, path, f". Remove it to go on after epoch {kept[-1]}." if kept else "")
        load_random_states(learner, path)


def _take(folder, done, stack):
    """Holds the folder while the stack is open; a TrainingError if another process trains there, or has trained."""
    if folder is not None:
        stack.enter_context(folder.held())
        if (folder.checkpoints() or [0])[-1] != done:
            raise TrainingError(f"Another process has trained in {folder.path} since this one began.")


def _prepared_fit(recipe, settings, data, model, done, batches):
    """The arguments of `fit` for the epochs that are left; bad ones are found before the run folder is taken."""
    mixup = {} if recipe.mixup is None else {"mixup": (recipe.mixup, len(data.spec.class_names))}
    epochs = dict(epochs=recipe.epochs, initial_epoch=done)
    return dict(
        x=for_model(model, data.train(training=True, seed=settings.seed, **epochs, **mixup, **batches)),
        validation_data=for_model(model, data.validation(**batches)),
        steps_per_epoch=-(-data.spec.train_size // recipe.batch_size),
        shuffle=False,
        **epochs,
    )


def _report_start(folder, recipe, settings, data):
    spec = data.spec
    each = "for training" if settings.epoch_size is None else "an epoch"
    sizes = f"{spec.train_size:,} examples {each}, {spec.test_size:,} for testing"
    for _, familiar in data.evaluated[:-1]:
        sizes += f" at novel and {familiar.test_size:,} at familiar viewpoints"
    print(f"run folder: {folder.path}")
    print(f"data: {spec.name}, {sizes}, {spec.inputs}, {len(spec.class_names)} classes", flush=True)
    steps = -(-spec.train_size // recipe.batch_size)
    if steps < _FEW_STEPS and settings.epoch_size is None:
        few = f"{steps} step{'s' * (steps > 1)} of up to {recipe.batch_size} examples"
        print(f"hint: an epoch has only {few}; a smaller --batch-size makes more steps and learns more", flush=True)
    for hint in cpu_hints(settings.dtype):
        print(f"hint: {hint}", flush=True)


def _report_resumed(folder, done, epochs, reached):
    if not done:
        print(f"{folder.path} holds no finished epoch to resume: a new run starts", flush=True)
    elif reached:
        print(f"{folder.path} has reached --stop-at after epoch {done}: nothing is left to train", flush=True)
    elif done == epochs:
        print(f"all {done} epochs of {folder.path} are done: nothing is left to train", flush=True)
    else:
        print(f"{folder.path} goes on after epoch {done} of {epochs}", flush=True)
