"""HAFrame's frame alone: cross-entropy on the fixed classifier, without the loss of cosines."""

from hierbench import hyperparameter
from hierbench.methods.haframe import HAFrame, Mode


class FrameAlone(HAFrame):
    """HAFrame with alpha 0: the frame of gamma 2, and cross-entropy."""

    name = "haframe_frame"
    title = "HAFrame, frame alone"
    source = "Liang & Davis, ICCV 2023, Table 6: the frame without the loss of cosines"

    class Params(HAFrame.Params):
        """As HAFrame's, with alpha 0 and nothing to search."""

        alpha: float = hyperparameter(0.0, low=0.0, high=1.0)
        gamma: float = hyperparameter(2.0, low=0.1, high=20.0)
        s_min: Mode = "paper"
