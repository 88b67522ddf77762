"""Python code in a process of its own."""

import os
import subprocess
import sys


def run_script(script, *arguments, **environment):
    """Runs it with this process's import path and environment, which `environment` adds to, and keeps what it says."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
