"""The machine that trains: its devices, versions and memory, and what would be faster on it."""

import os
import pathlib
import platform
import re
import sys
import time

import keras

from tf_capsules.lazy import torch
from tf_capsules.version import __version__


def peak_memory_mb():
    """Largest resident size of this process so far, in MiB (Linux and macOS)."""
    status = pathlib.Path("/proc/self/status")  # of Linux, where getrusage starts with the size of the parent process
    if status.exists() and (peak := re.search(r"^VmHWM:\s*(\d+)", status.read_text(), re.MULTILINE)):
        return round(int(peak[1]) / 2**10)
    try:
        import resource
    except ImportError:  # Windows
        return ""
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(size / (2**20 if sys.platform == "darwin" else 2**10))


def environment():
    """Device and versions, for a row of results."""
    backend = keras.backend.backend()
    module = sys.modules.get(backend)
    return {
        "device": device_name(),
        "python": platform.python_version(),
        "backend": f"{backend} {getattr(module, '__version__', '')}".strip(),
        "keras": keras.__version__,
        "tf_capsules": __version__,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def device_name():
    """The accelerators that Keras sees, or the number of CPU cores."""
    accelerators = [device for device in _devices() if not device.startswith("cpu")]
    if accelerators:
        return f"{len(accelerators)} x {accelerators[0].split(':')[0]}"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} CPU core{'s' * (cores != 1)} ({platform.machine()})"


def _devices():
    """Names of all devices, such as "cpu:0"."""
    if keras.backend.backend() == "torch":  # there Keras knows none
        return ["cpu:0", *(f"cuda:{number}" for number in range(torch.cuda.device_count()))]
    return keras.distribution.list_devices()


def cpu_hints(dtype, cpu="/proc/cpuinfo"):
    """What makes training in this dtype faster on an x86 CPU, in words; Linux describes the CPU in the file `cpu`."""
    try:
        instructions, hints = pathlib.Path(cpu).read_text(), []
    except OSError:
        return []
    if not all(device.startswith("cpu") for device in _devices()):
        return []
    if dtype == "mixed_bfloat16" and "avx" in instructions and "_bf16" not in instructions:
        hints.append("this CPU has no instructions for bfloat16; --dtype float32 is usually faster")
    asked = keras.backend.backend() != "tensorflow" or "TF_ENABLE_ONEDNN_OPTS" in os.environ
    if not asked and "avx2" in instructions and not any(name in instructions for name in ("_vnni", "_bf16", "amx_")):
        hints.append("on this CPU TensorFlow is usually faster with TF_ENABLE_ONEDNN_OPTS=1 in the environment")
    return hints
