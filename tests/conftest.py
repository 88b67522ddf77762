import gc

import keras
import pytest

# Tracing makes many objects, few of them garbage: looking for it less often saves a fifth of the time.
gc.freeze()
gc.set_threshold(100_000, 20, 20)

if keras.backend.backend() == "jax":
    import jax

    # These programs run once: compiling them takes far longer than running them.
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(autouse=True)
def fixed_seed():
    """Every test starts from the same random state and leaves the dtype policy as it was."""
    policy = keras.config.dtype_policy()
    keras.utils.set_random_seed(0)
    yield
    keras.config.set_dtype_policy(policy)
