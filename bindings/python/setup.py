"""`pip install ./bindings/python`, in a checkout: the version is the one in its CMakeLists.txt."""

import pathlib
import re

from setuptools import setup

cmake = pathlib.Path(__file__).resolve().parents[2] / "CMakeLists.txt"
setup(version=re.search(r"project\(ssmbench VERSION ([0-9.]+)", cmake.read_text()).group(1))
