"""Helpers of all benchmarks: they time steps in separate processes."""

import argparse
import importlib.metadata
import json
import statistics
import subprocess
import sys
import time


def alone(script, *arguments):
    """Runs `script --one ARGUMENTS` in its own process; arguments and result (the last line printed) are JSON."""
    done = subprocess.run(
        [sys.executable, script, "--one", json.dumps(arguments)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def parsed(parser, measure):
    """Parses the options. In a process started by `alone` it prints the result of `measure` and exits instead."""
    parser.add_argument("--one", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(*options.one)))
        raise SystemExit
    return options


def software(form):
    """Device and versions for a row of results; a form in PyTorch has PyTorch's."""
    from tf_capsules.runs.machine import environment

    in_torch = {"backend": f"torch {importlib.metadata.version('torch')}", "keras": ""} if "PyTorch" in form else {}
    return environment() | in_torch


def timed(step, steps, warm_up=2):
    """Median seconds of a step, growth of the peak memory in MiB, and the value that the last step returned."""
    from tf_capsules.runs.machine import peak_memory_mb

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


def compare(script, description, measure, case, cases, forms, batch, output):
    """Measures every form in every case with `measure(form, argument, batch, steps)`; the last form is the textbook's.

    `case` is the name of a CSV column, and `cases` maps its values to the arguments. Each form runs three times in its
    own process, in turn. A CSV row has the median of the three times and the largest memory.
    """
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=list(map(str, cases)), default=list(map(str, cases)))
    parser.add_argument("--output", default=output)
    options = parsed(parser, measure)
    from tf_capsules.runs.results import append_row

    for name, argument in cases.items():
        if str(name) not in options.cases:
            continue
        runs = {form: [] for form in forms}
        for _ in range(3):
            for form in forms:
                runs[form].append(alone(script, form, argument, options.batch, options.steps))
        seconds = {form: statistics.median(run["seconds"] for run in three) for form, three in runs.items()}
        for form, three in runs.items():
            row = {
                case: name,
                "batch": options.batch,
                "form": form,
                "seconds": round(seconds[form], 4),
                "times_faster_than_textbook": round(seconds[forms[-1]] / seconds[form], 1),
                "peak_memory_mb": max(run["memory"] for run in three),
                "gradient_norm": round(three[0]["value"], 3),
                **software(form),
            }
            append_row(options.output, row)
            print(
                f"{name!s:20} {form:20} {row['seconds']:8.4f} s  {row['peak_memory_mb']:6} MiB  {row['gradient_norm']}",
                flush=True,
            )
