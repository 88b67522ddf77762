import numpy as np
from backend import array
from oracle import read

from tf_capsules.layers import EMRouting

ORACLE = read("em_routing")


def test_oracle_of_coordinate_addition():
    """Each child routes alone and has a pose of zeros, so its vote and the parent's pose are its coordinates."""
    case = ORACLE["C_coordinate_addition"]
    poses = np.zeros((16, 4, 4, 1, 4, 4), "float32")
    alone = np.eye(16, dtype="float32").reshape(16, 4, 4, 1)
    layer = EMRouting(2, 4, iterations=1, sharing="positions", coordinates=True)
    votes = array(layer(poses, alone)[0]).reshape(4, 4, 2, 16)
    expected = np.zeros((4, 4, 2, 16))
    expected[..., 3] = np.array(case["offsets_rows"])[:, None, None]
    expected[..., 7] = np.array(case["offsets_cols"])[None, :, None]
    np.testing.assert_allclose(votes, expected, atol=1e-6)
