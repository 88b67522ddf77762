"""The metadata are in setup.cfg. What was measured is installed with the package, which quotes it."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["tf_capsules*"]), "tf_capsules.results"],
    package_dir={"tf_capsules.results": "results"},
    package_data={
        "tf_capsules": ["py.typed"],
        "tf_capsules.models.weights": ["*.h5", "*.md"],
        "tf_capsules.results": ["*.csv"],
    },
)
