import keras
import pytest


@pytest.fixture(autouse=True)
def fixed_seed():
    """Every test starts from the same random state and leaves the dtype policy as it was."""
    policy = keras.config.dtype_policy()
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy(policy)
