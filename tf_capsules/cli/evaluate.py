"""`tf-capsules evaluate`."""

from tf_capsules import runs
from tf_capsules.cli.options import DATA, add_results, add_runs, add_settings, given_settings, print_accuracy
from tf_capsules.runs.evaluation import describe_crops
from tf_capsules.runs.folder import short_names

HELP = "Evaluate a run, or several as an ensemble, on its own or another test split."


def add_parser(parser):
    add_runs(parser, "; of several runs the probabilities are summed")
    parser.add_argument(
        "--crops",
        metavar="N",
        help="sum the probabilities over N random crops of each image, the same ones each time; fixed: over ten crops, "
        "the corners and the centre, and these mirrored",
    )
    add_settings(
        parser,
        ("batch_size", "iterations", "jit", *DATA),
        batch_size="examples at a time (default: the recipe's)",
        iterations="of each routing layer (default: those it was trained with)",
    )
    add_results(parser)


def run(options):
    short_names(options.folders)  # none twice
    loaded = [runs.find_run(folder, options.weights, **given_settings(options)) for folder in options.folders]
    first = loaded[0]
    crops = int(options.crops) if (options.crops or "").isdecimal() else options.crops
    accuracies = []
    for measured in runs.evaluate_runs(loaded, crops, options.results):
        spec, values = measured.spec, measured.values
        kind = "image" if first.data.transformer is None else "text"
        how = [f"{spec.test_size:,} test {kind}s of {spec.name}"]
        how += [f"loss {values['loss']:.4f}"] if "loss" in values else []
        how += [f"ensemble of {len(loaded)}"] if len(loaded) > 1 else []
        how += [] if crops is None else [describe_crops(crops)]
        print(f"{', '.join(how)}, {1000 * measured.seconds / spec.test_size:.1f} ms each, compiling included")
        if spec.note:
            print(spec.note)
        accuracies.append(values[first.recipe.metric])
    print_accuracy(first.recipe.metric, accuracies)
