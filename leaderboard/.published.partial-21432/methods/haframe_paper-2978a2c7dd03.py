"""HAFrame with the values that the paper has for CIFAR-100, on every dataset; only learning rates are searched."""

from hierbench import hyperparameter
from hierbench.methods.haframe import HAFrame, Mode


class HAFramePaper(HAFrame):
    """HAFrame with alpha 0.4 and gamma 2."""

    name = "haframe_paper"
    title = "HAFrame (alpha 0.4, gamma 2)"
    source = "Liang & Davis, ICCV 2023, section 4: the values for CIFAR-100"

    class Params(HAFrame.Params):
        """As HAFrame's, with the paper's defaults for CIFAR-100 and nothing to search."""

        alpha: float = hyperparameter(0.4, low=0.0, high=1.0)
        gamma: float = hyperparameter(2.0, low=0.1, high=20.0)
        s_min: Mode = "paper"
