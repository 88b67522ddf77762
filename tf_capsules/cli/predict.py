"""`tf-capsules predict`."""

from tf_capsules.runs.prediction import ExportedModel, save_attribution

HELP = "Classify image files, or texts with a picture of what each token was used for."


def add_parser(parser):
    parser.add_argument("model", metavar="MODEL", help="run folder, or folder of an exported SavedModel")
    parser.add_argument(
        "inputs", nargs="+", metavar="INPUT", help="PNG, JPEG, BMP, GIF or WebP files; or texts, each in quotes"
    )
    parser.add_argument(
        "--output", "-o", default="predictions", help="folder for pictures of texts (default: predictions)"
    )


def run(options):
    model = ExportedModel(options.model)
    for given, (classes, answer) in zip(options.inputs, model.predict(options.inputs), strict=True):
        name = given if len(given) <= 100 or model.takes_images else f"{given[:97]}..."
        print(f"{name}: {'; '.join(f'{label}, probability {value:.3f}' for label, value in classes)}")
        if "shares" in answer:
            picture = save_attribution(answer, options.output)
            too_many = f"the model read {len(answer['tokens'])} tokens of this text, too many for a picture"
            print(too_many if picture is None else f"picture: {picture}")
