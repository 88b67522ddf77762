"""Processes in which nothing has run yet: forks of one that has imported Keras, which takes seconds, and no more."""

import atexit
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SERVER = """
import json, os, signal, sys, traceback
import keras

for line in sys.stdin:
    script, arguments, environment, outputs = json.loads(line)
    child = os.fork()
    if child == 0:
        code = 1
        signal.alarm(300)  # it ends a process that hangs
        try:
            os.environ.update(environment)
            sys.argv[1:] = arguments
            for number, path in zip((1, 2), outputs):
                os.dup2(os.open(path, os.O_WRONLY), number)
            exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@functools.cache
def _server():
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    server = subprocess.Popen([sys.executable, "-c", SERVER], env=environment, **pipes)
    atexit.register(server.communicate)  # it ends with its input
    return server


def run_script(script, *arguments, **environment):
    """Runs Python code in a process of its own, as `subprocess.run` would with `python -c`, and keeps what it says."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = [pathlib.Path(folder, name) for name in ("out", "err")]
        for path in outputs:
            path.touch()
        job = [script, list(map(str, arguments)), environment, list(map(str, outputs))]
        server = _server()
        server.stdin.write(json.dumps(job) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(job[:2], code, *(path.read_text() for path in outputs))
