"""What all benchmarks measure with: steps in a process of their own."""

import json
import statistics
import subprocess
import sys
import time


def alone(script, *arguments):
    """What `script --one` prints last of these arguments, as JSON both: measured in a process of its own."""
    done = subprocess.run(
        [sys.executable, script, "--one", json.dumps(arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def timed(step, steps, warm_up=2):
    """Median seconds of a step, MiB of the process above what it held before, and what the last step gave."""
    from tf_capsules.training import peak_memory_mb

    before = peak_memory_mb()
    seconds = []
    for _ in range(steps + warm_up):
        started = time.perf_counter()
        value = step()
        seconds.append(time.perf_counter() - started)
    return {
        "seconds": statistics.median(seconds[warm_up:]),
        "memory": peak_memory_mb() - before,
        "value": float(value),
    }
