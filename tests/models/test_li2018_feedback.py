import keras
import numpy as np
import pytest

from tf_capsules.models import li2018, li2018_feedback


def trainable(model):
    return sum(int(np.prod(weight.shape)) for weight in model.trainable_weights)


@pytest.mark.parametrize(
    "network, options, units",
    [
        ("EncapNet", dict(), 36_791_756 - 36_544_064),
        ("EncapNet", dict(links=("half", "same")), 37_678_808 - 36_544_064),
        ("EncapNet", dict(links=("same",)), 887_052),
        ("ResNetTwin", dict(), 1_765_452),
        ("ResNetTwin", dict(divergence="kl"), 1_765_452),
    ],
    ids=str,
)
def test_parameters_of_feedback_units(network, options, units):
    with keras.StatelessScope(initialize_variables=False):
        model = getattr(li2018, network)()
        assert trainable(li2018_feedback.feedback(model, **options)) == trainable(model) + units
    keras.utils.clear_session(free_memory=False)


def test_feedback_options_reach_the_units():
    model = li2018.EncapNet((8, 8, 3), types=4, layers=(3,), coefficients=None)
    options = dict(vanilla=True, critic=False, cost="l2", unbiased=False, weight=3)
    trained = li2018_feedback.feedback(model, **options)
    assert trained.links == [("primary_capsules", "module_1_type_2_2")] and trained.weight == 3
    unit = trained.units[0]
    assert (unit.groups, unit.squash, unit.use_critic) == (1, False, False)
    assert (unit.divergence.cost, unit.divergence.unbiased) == ("l2", False)
    for wrong in (dict(links=()), dict(links=("whole",)), dict(divergence="js"), dict(divergence="kl", cost="l2")):
        with pytest.raises(ValueError, match="Received: "):
            li2018_feedback.feedback(model, **wrong)
    with pytest.raises(ValueError, match="`network` must be an EncapNet"):
        li2018_feedback.feedback(li2018.ShortEncapNet((8, 8, 3)))
    assert li2018_feedback.feedback(model.encoder).units[0].groups == 4


def test_feedback_for_another_network_is_refused():
    network = li2018.EncapNet((8, 8, 3), types=4, layers=(1,))
    for links in ("third", (), ("half", "half"), None):
        with pytest.raises(ValueError, match='`links` must be of "half" and "same"'):
            li2018_feedback.feedback(network, links)
    for other in (None, li2018.SameShapeCNN()):
        with pytest.raises(ValueError, match="`network` must be an EncapNet, .*Received: "):
            li2018_feedback.feedback(other)
    with pytest.raises(ValueError, match="`vanilla` must be true or false"):
        li2018_feedback.feedback(network, vanilla="no")
