import keras
import pytest
from served import NAMES, make_model, make_plain
from small_transformers import bert, gpt2, load, minilm, pytorch  # noqa: F401

from tf_capsules import export


@pytest.fixture(scope="session")
def model():
    keras.utils.set_random_seed(0)
    return make_model()


@pytest.fixture(scope="session")
def plain():
    """A network without routing, for tests that do not depend on the network: its export takes a third of the time."""
    keras.utils.set_random_seed(0)
    return make_plain()


@pytest.fixture(scope="session")
def folder(model, tmp_path_factory):
    return export.export_saved_model(model, tmp_path_factory.mktemp("export") / "model", class_names=NAMES)


@pytest.fixture(scope="session")
def loaded(folder):
    import tensorflow as tf

    return tf.saved_model.load(str(folder))
