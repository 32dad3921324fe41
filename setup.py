"""Map `configs/` into the wheel, as the package `jaxtrain.recipes`."""

from setuptools import find_namespace_packages, setup

setup(
    packages=[*find_namespace_packages(include=["jaxtrain*"]), "jaxtrain.recipes"],
    package_dir={"jaxtrain.recipes": "configs"},
)
