"""Every layer, network and model of `sweep.py` keeps the contract of `contract.py`."""

import dataclasses

import keras
import pytest
from backend import slow_on_jax
from layers.contract import run_layer_contract
from sweep import LAYERS, MODELS

import tf_capsules.layers
import tf_capsules.models

# On JAX all layers, and one network of each paper or two: the others are made of the same layers.
ON_JAX = ("CapsNet", "MatrixCapsNet", "CapNet EM", "EncapNet", "ImageCapsNet", "TextCapsNet", "AttentionCapsNet")
ON_JAX += ("EfficientCapsNet instance normalization",)
NETWORKS = [pytest.param(name, marks=[pytest.mark.long, *([] if name in ON_JAX else [slow_on_jax])]) for name in MODELS]


@pytest.mark.parametrize("name", [*LAYERS, *NETWORKS])
def test_keeps_the_contract(name, tmp_path):
    run_layer_contract((LAYERS | MODELS)[name], tmp_path)


@pytest.mark.parametrize("name", LAYERS)
def test_an_empty_batch_gives_empty_results(name):
    if keras.backend.backend() == "jax":
        pytest.skip("JAX infers no axis when it reshapes an empty array")
    if keras.backend.backend() == "torch" and name == "ConvEMRouting":
        pytest.skip("Keras's maximum of an empty array has no axes on PyTorch")
    case = LAYERS[name]
    results = case.make()(**{argument: array[:0] for argument, array in case.arrays().items()})
    assert all(len(result) == 0 for result in keras.tree.flatten(results) if len(result.shape))


class Holder(keras.Model):
    """A subclassed model, of which Keras asks the shapes that its layer was built with."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.built = layer, True


@pytest.mark.parametrize("name", LAYERS)
def test_a_model_of_one_s_own_with_the_layer_has_a_summary(name, capsys):
    case = LAYERS[name]
    layer = case.make()
    layer(**case.arrays())
    Holder(layer).summary()
    assert layer.name[:8] in capsys.readouterr().out


@pytest.mark.parametrize("name", MODELS)
def test_a_network_has_a_summary(name, capsys):
    MODELS[name].make().summary(expand_nested=True)
    assert "Total params" in capsys.readouterr().out


def test_a_failure_in_half_precision_leaves_the_dtype_policy_of_before(tmp_path):
    case = dataclasses.replace(LAYERS["CapsuleLength"], output_dtype="float64")
    with pytest.raises(AssertionError, match="mixed_.*float16"):
        run_layer_contract(case, tmp_path)
    assert keras.config.dtype_policy().name == "float32"


def test_every_public_layer_is_in_the_sweep():
    swept = {type(case.make()).__name__ for case in LAYERS.values()}
    assert swept == set(tf_capsules.layers.__all__)


def test_every_network_of_the_papers_is_in_the_sweep():
    modules = [vars(tf_capsules.models)[name] for name in tf_capsules.models.__all__ if name[-4:].isdigit()]
    networks = {
        name
        for module in modules
        for name, value in vars(module).items()
        if name[0].isupper() and getattr(value, "__module__", None) == module.__name__
    }
    assert networks and {case.of.__name__ for case in MODELS.values()} == networks
