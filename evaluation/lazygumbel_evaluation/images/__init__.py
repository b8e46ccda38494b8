"""The paper's features of images: photographs to activations of a residual network, and these to rows."""

from lazygumbel_evaluation.images.activations import imagenet
from lazygumbel_evaluation.images.resnet import imagenet_activations

__all__ = ["imagenet", "imagenet_activations"]
