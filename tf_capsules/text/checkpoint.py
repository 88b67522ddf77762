"""A transformer's files in Hugging Face's form: where they are, what they say, and a hash of what they hold."""

import functools
import hashlib
import importlib.util
import json
import pathlib
import re

from tf_capsules.files import reading

# Weights are read from safetensors alone: the older pickled files run any code inside them.
_WEIGHTS = "*.safetensors"
_TEXTS = ("*.json", "*.txt", "*.model")


class Checkpoint:
    """The files of one transformer: config.json, the weights as .safetensors, and the files of the tokenizer.

    Attributes:
        folder: a `pathlib.Path`.
        config: what config.json says, a dict.

    Raises:
        FileNotFoundError: config.json or the weights are not there.
        ValueError: config.json is not that of a transformer.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        path = self.folder / "config.json"
        for pattern in ("config.json", _WEIGHTS):
            if not any(self.folder.glob(pattern)):
                form = f"in Hugging Face's form is a folder with config.json, {_WEIGHTS} and the tokenizer's files"
                raise FileNotFoundError(f"{self.folder} has no {pattern}: a transformer {form}")
        with reading(path, "is not a transformer's configuration"):
            self.config = json.loads(path.read_text(encoding="utf-8"))
            self.config["model_type"]

    @functools.cached_property
    def fingerprint(self):
        """A hash of what determines its hidden states: configuration, tokenizer, weights (a second per gigabyte)."""
        digest = hashlib.sha256()
        for path in sorted(path for pattern in (*_TEXTS, _WEIGHTS) for path in self.folder.glob(pattern)):
            with path.open("rb") as file:
                digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return digest.hexdigest()

    @functools.cached_property
    def weights(self):
        """The names of its weights, a set; a ValueError where a file is no safetensors file."""
        names = set()
        for path in self.folder.glob(_WEIGHTS):
            with reading(path, "is no safetensors file"), path.open("rb") as file:
                length = int.from_bytes(file.read(8), "little")
                names |= set(json.loads(file.read(length) if length < path.stat().st_size else b""))
        return names - {"__metadata__"}

    @functools.cached_property
    def tokenizer_limit(self):
        """The most tokens that the tokenizer's configuration allows, or None."""
        path = self.folder / "tokenizer_config.json"
        with reading(path, "is not a tokenizer's configuration"):
            limit = json.loads(path.read_text(encoding="utf-8")).get("model_max_length") if path.is_file() else None
            return None if limit is None or limit > 10**9 else int(limit)  # a huge number stands for none


def find(folder_or_name):
    """The checkpoint of this folder or name, see `tf_capsules.text.load`. One on the hub is fetched if necessary.

    A FileNotFoundError says what was tried. A ValueError is for a package with no transformer or with several.
    """
    name = str(folder_or_name)
    if pathlib.Path(name).is_dir():
        return Checkpoint(name)
    if not re.fullmatch(r"[\w-][\w.-]*(/[\w-][\w.-]*)?", name):
        raise FileNotFoundError(f"there is no folder {name!r}, and it can't be the name of a package or on the hub")
    if name.isidentifier() and (spec := importlib.util.find_spec(name)) and spec.submodule_search_locations:
        folder = pathlib.Path(next(iter(spec.submodule_search_locations)))
        found = sorted({path.parent for path in folder.rglob(_WEIGHTS) if (path.parent / "config.json").is_file()})
        if len(found) != 1:
            raise ValueError(f"the package {name!r} in {folder} carries {len(found)} transformers, not one")
        return Checkpoint(found[0])
    absent = f"there is no folder and no installed package {name!r}"
    try:
        from huggingface_hub import snapshot_download

        folder = snapshot_download(name, allow_patterns=[*_TEXTS, _WEIGHTS], ignore_patterns=["*/*"])
    except ImportError as error:
        install = "install huggingface_hub (pip install 'tf_capsules[text]')"
        raise FileNotFoundError(f"{absent}; to fetch it from the Hugging Face hub, {install}") from error
    except (OSError, ValueError) as error:  # what the hub raises for an absent name or without network is an OSError
        raise FileNotFoundError(f"{absent}, and the Hugging Face hub did not give it: {error}") from error
    return Checkpoint(folder)
