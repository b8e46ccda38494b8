"""The softmax over all rows as the loss of a PyTorch encoder; needs the extra `torch`.

For theta from an encoder and a target row the negative log-likelihood is log Z - theta . phi_target / temperature, and
its gradient is (E[phi] - phi_target) / temperature. One estimate gives log Z and E[phi], so that a training step costs
that estimate: the backward pass only multiplies.
"""

from lazygumbel._support.extras import require

require("torch", extra="torch")

from lazygumbel.torch.loss import LogLinearLoss  # noqa: E402  # after the line that names the cure
from lazygumbel.torch.negatives import Negatives, negatives  # noqa: E402

__all__ = ["LogLinearLoss", "Negatives", "negatives"]
