"""`pip install ./bindings/python`, in a checkout: the version is the one in its CMakeLists.txt."""

import pathlib
import re

from setuptools import setup
from setuptools.command.build_py import build_py

root = pathlib.Path(__file__).resolve().parents[2]


class BuildWithHeader(build_py):
    """Adds the header that the handlers of JAX are compiled with."""

    def run(self):
        super().run()
        if not self.editable_mode:
            self.copy_file(str(root / "plugins/ssmbench_plugin.h"), str(pathlib.Path(self.build_lib) / "ssmbench"))


version = re.search(r"project\(ssmbench VERSION ([0-9.]+)", (root / "CMakeLists.txt").read_text()).group(1)
setup(version=version, cmdclass={"build_py": BuildWithHeader})
