"""Builds the API reference from the docstrings into docs/build: `python docs/api.py`, then open docs/build/index.html.

It needs the extra `docs` (pdoc). Any warning is an error.
"""

import os
import pathlib
import pkgutil
import warnings

import pdoc

import tf_capsules

BUILD = pathlib.Path(__file__).resolve().parent / "build"


def modules():
    """Names of all modules, those too that their package does not list in its `__all__` and pdoc would leave out."""
    given, covered = [], set()
    for name in [
        "tf_capsules",
        *sorted(one.name for one in pkgutil.walk_packages(tf_capsules.__path__, "tf_capsules.")),
    ]:
        if name not in covered:
            given.append(name)
            covered |= set(pdoc.extract.walk_specs([name]))
    return given


if __name__ == "__main__":
    os.chdir(BUILD.parent)  # pdoc warns of a folder that has the name of an installed package
    warnings.simplefilter("error")
    pdoc.docstrings.GOOGLE_LIST_SECTIONS.append("Call arguments")
    pdoc.render.configure(docformat="google", show_source=False)
    pdoc.pdoc(*modules(), output_directory=BUILD)
    print(f"{len(list(BUILD.rglob('*.html')))} pages in {BUILD}")
