"""`imagenet_activations`: photographs through a residual network, for `imagenet`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from lazygumbel._support.checks import check_count
from lazygumbel._support.extras import require
from lazygumbel._support.persist import replacing
from lazygumbel.datasets.opening import FilePath, existing, naming
from lazygumbel.progress import ShowProgress, choose

__all__ = ["imagenet_activations"]

Network = Literal["resnet50", "resnet101", "resnet152"]

_SUFFIXES = (".jpeg", ".jpg", ".png")
_SIDE, _CROP = 256, 224
# Of the pixels that the networks were trained on.
_MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
_DEVIATION = np.array([0.229, 0.224, 0.225], dtype=np.float32)


def imagenet_activations(
    images: FilePath,
    folder: FilePath,
    *,
    weights: FilePath,
    network: Network = "resnet152",
    maps: bool = False,
    batch: int = 32,
    device: str = "cpu",
    progress: ShowProgress = None,
) -> None:
    """Write to `folder` a `.npy` for each JPEG or PNG below `images`: the activations before the classifier, float32.

    They are averaged over space, (2048,), 8 KB an image; `maps=True` keeps the maps, (7, 7, 2048), 49 times as much.
    `weights` is the file of a state dict for the torchvision network; nothing is downloaded. Images that have their
    file already are left out, so that a run can be taken up again.
    """
    torch: Any = require("torch", extra="images")
    models: Any = require("torchvision", extra="images").models
    require("PIL.Image", extra="images")
    check_count(batch, "batch")
    if network not in get_args(Network):
        raise ValueError(f"network must be one of {', '.join(get_args(Network))}, not {network!r}")
    folder = Path(folder)
    waiting = _waiting(Path(images), folder)
    trunk = _trunk(torch, getattr(models, network)(weights=None), existing(weights, "weights")).to(device)
    folder.mkdir(parents=True, exist_ok=True)
    with choose(progress).task("images through the network", len(waiting)) as task, torch.inference_mode():
        for start in range(0, len(waiting), batch):
            paths = waiting[start : start + batch]
            seen = trunk(torch.from_numpy(np.stack([_pixels(path) for path in paths])).to(device))
            kept = seen.permute(0, 2, 3, 1) if maps else seen.mean(dim=(2, 3))
            _save(kept.cpu().numpy(), paths, folder)
            task.advance(len(paths))


def _waiting(images: Path, folder: Path) -> list[Path]:
    """The images without a file yet, in the order of their names."""
    if not images.is_dir():
        raise ValueError(f"images: there is no folder {images}")
    found: dict[str, Path] = {}
    for path in sorted(images.rglob("*")):
        if path.suffix.lower() in _SUFFIXES and found.setdefault(path.stem, path) != path:
            raise ValueError(f"images: {path} and {found[path.stem]} would be written to the same file")
    if not found:
        raise ValueError(f"images: {images} holds no files that end in {', '.join(_SUFFIXES)}")
    return [path for stem, path in sorted(found.items()) if not (folder / f"{stem}.npy").exists()]


def _trunk(torch: Any, network: Any, weights: Path) -> Any:
    """The network up to its last activation maps: all but the average over space and the classifier."""
    try:
        network.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    except Exception as error:  # on a bad file torch raises whatever its unpickler trips over
        raise ValueError(f"weights: {weights}: {error}") from error
    return torch.nn.Sequential(*list(network.children())[:-2]).eval()


def _pixels(path: Path) -> npt.NDArray[np.float32]:
    """The middle of an image as the networks were trained to see it, (3, 224, 224)."""
    pillow: Any = require("PIL.Image", extra="images")
    with naming(path, "images"), pillow.open(path) as opened:
        image = opened.convert("RGB")
    width, height = (int(_SIDE * side / min(image.size)) for side in image.size)
    left, top = round((width - _CROP) / 2), round((height - _CROP) / 2)
    image = image.resize((width, height), pillow.Resampling.BILINEAR).crop((left, top, left + _CROP, top + _CROP))
    pixels = np.asarray(image, dtype=np.float32) / np.float32(255)
    return ((pixels - _MEAN) / _DEVIATION).transpose(2, 0, 1)


def _save(activations: npt.NDArray[np.float32], paths: Sequence[Path], folder: Path) -> None:
    for values, path in zip(activations, paths, strict=True):
        with replacing(folder / f"{path.stem}.npy") as file:  # a file that is there is whole
            np.save(file, values)
