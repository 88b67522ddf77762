"""Runs Python code in a separate process."""

import os
import subprocess
import sys


def run_script(script, *arguments, **environment):
    """Runs code with this process's import path and environment plus `environment`; captures its output."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
