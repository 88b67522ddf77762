"""PyTorch's optimizers as an oracle. They run in a separate process, since PyTorch can crash beside TensorFlow."""

import importlib.util
import json
import subprocess
import sys

import numpy as np
import pytest

needs_torch = pytest.mark.skipif(not importlib.util.find_spec("torch"), reason="PyTorch's optimizers are the oracle")

_SCRIPT = """
import json, sys, torch

results = []
for job in json.load(sys.stdin):
    weight = torch.tensor(job["start"], dtype=torch.float64, requires_grad=True)
    optimizer = getattr(torch.optim, job["optimizer"])([weight], **job["options"])
    for gradient, rate in zip(job["gradients"], job["rates"]):
        optimizer.param_groups[0]["lr"] = rate
        weight.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.step()
    results.append(weight.tolist())
print(json.dumps(results))
"""


def job(optimizer, start, gradients, rates, **options):
    """A job for `torch.optim`: an optimizer's name and options, the start, each step's gradient and learning rate."""
    start, gradients = np.asarray(start).tolist(), np.asarray(gradients).tolist()
    return {"optimizer": optimizer, "start": start, "gradients": gradients, "rates": rates, "options": options}


def weights_after(jobs):
    """The weights in float64 after each job's last step."""
    command = [sys.executable, "-c", _SCRIPT]
    done = subprocess.run(command, input=json.dumps(jobs), capture_output=True, text=True, check=True)
    return [np.array(weight) for weight in json.loads(done.stdout)]
