"""TensorFlow's Adam."""

import keras

from tf_capsules.argument_types import Rate
from tf_capsules.arguments import decay_rate
from tf_capsules.lazy import tf
from tf_capsules.optimizers.gradients import dense


@keras.saving.register_keras_serializable("tf_capsules")
class Adam(keras.optimizers.Adam):
    """Adam with TensorFlow's epsilon, 1e-8 instead of Keras's 1e-7.

    Source: `tf.train.AdamOptimizer`, with which Sabour et al. 2017 and Hinton et al. 2018 trained. Keras's Adam has the
    same form, the "epsilon hat" of Kingma and Ba 2015, section 2: with the moments `m` and `v` and `t = 1, 2, ...`,
    `weight -= learning_rate * sqrt(1 - beta_2^t) / (1 - beta_1^t) * m / (sqrt(v) + epsilon)`.
    PyTorch's form, which adds epsilon to the bias-corrected root, is `CoupledAdam` with `decay=0`.

    On TensorFlow one kernel updates weight and moments together (float32, without `amsgrad`): about twice as fast on
    two CPU cores (`benchmarks/adam.py`).

    Args:
        learning_rate, beta_1, beta_2, kwargs: as in `keras.optimizers.Adam`.
        epsilon: added to the root of the second moment, which is not bias-corrected.

    Raises:
        ValueError: a beta outside [0, 1).

    Example:
        >>> weight = keras.Variable([1.0])
        >>> Adam(0.1).apply([np.array([1e-5], "float32")], [weight])
        >>> round(float(weight[0]), 4)  # 0.924 with Keras's epsilon
        0.9031
    """

    def __init__(
        self, learning_rate: Rate = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-8, **kwargs
    ):
        betas = decay_rate("beta_1", beta_1), decay_rate("beta_2", beta_2)
        super().__init__(learning_rate, *betas, epsilon, **kwargs)

    def update_step(self, gradient, variable, learning_rate):
        gradient = dense(gradient, variable)
        if keras.backend.backend() != "tensorflow" or gradient.dtype != "float32" or self.amsgrad:
            return super().update_step(gradient, variable, learning_rate)
        index, step = self._get_variable_index(variable), tf.cast(self.iterations + 1, "float32")
        tf.raw_ops.ResourceApplyAdam(
            var=variable.handle,
            m=self._momentums[index].value.handle,
            v=self._velocities[index].value.handle,
            beta1_power=self.beta_1**step,
            beta2_power=self.beta_2**step,
            lr=tf.cast(learning_rate, "float32"),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=gradient,
        )
