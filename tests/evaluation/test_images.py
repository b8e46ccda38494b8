"""Activations of ImageNet: their PCA is held to a plain SVD."""

import sys
import tracemalloc
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_helpers import Recorder, all_rows, save
from lazygumbel._support import extras
from lazygumbel_evaluation.images import imagenet, imagenet_activations

# Activations of ImageNet


def activations(seed: int, m: int, side: int, channels: int) -> np.ndarray:
    """Maps like those of a ResNet: not negative, far from centred, with a falling spectrum that has no ties."""
    rng = np.random.default_rng(seed)
    scales = np.arange(1, channels + 1) ** -0.7
    images = rng.normal(size=(m, 1, 1, channels)) * scales @ np.linalg.qr(rng.normal(size=(channels, channels)))[0]
    return np.abs(3 + images + 0.3 * rng.normal(size=(m, side, side, channels))).astype(np.float32)


def pca(maps: np.ndarray, d: int, *, centred: bool = True) -> np.ndarray:
    """The oracle: all at once, by a singular value decomposition."""
    averages = maps.astype(np.float64).mean(axis=(1, 2))
    moved = averages - averages.mean(axis=0) if centred else averages
    axes = np.linalg.svd(moved, full_matrices=False)[2][:d]
    axes *= np.sign(axes[np.arange(d), np.abs(axes).argmax(axis=1)])[:, None]
    rows = moved @ axes.T
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def folder_of(path: Path, **files: np.ndarray) -> Path:
    path.mkdir(exist_ok=True)
    for name, array in files.items():
        np.save(path / f"{name}.npy", array)
    return path


LAYOUTS = {
    "maps": lambda maps: maps,
    "channels first": lambda maps: np.moveaxis(maps, 3, 1),
    "channels first, in C order": lambda maps: np.ascontiguousarray(np.moveaxis(maps, 3, 1)),
    "columns first": np.asfortranarray,
    "float64": lambda maps: maps.astype(np.float64),
    "other byte order": lambda maps: maps.astype(">f4"),
    "averages": lambda maps: maps.mean(axis=(1, 2), dtype=np.float64),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_imagenet(tmp_path, layout):
    maps = activations(1, 30, 7, 16)
    assert not np.allclose(pca(maps, 5), pca(maps, 5, centred=False), atol=0.1)
    wrong = np.moveaxis(maps, 3, 1).reshape(maps.shape)  # channels first, read as if they were last
    assert not np.allclose(pca(maps, 5), pca(wrong, 5), atol=0.1)

    view = LAYOUTS[layout]
    files = {"b": view(maps[8:20]), "c10": view(maps[20:21]), "a": view(maps[:8]), "c9": view(maps[21:])}
    features = imagenet(folder_of(tmp_path / "maps", **files), d=5)
    np.testing.assert_allclose(all_rows(features), pca(maps, 5), atol=1e-5)
    assert list(features.names) == [
        f"{s}:{i}" for s, m in (("a", 8), ("b", 12), ("c10", 1), ("c9", 9)) for i in range(m)
    ]


@pytest.mark.parametrize("layout", ["maps", "channels first", "averages"])
def test_imagenet_with_an_image_in_each_file(tmp_path, layout):
    maps = activations(2, 12, 7, 9)
    files = {f"n{i:02}": LAYOUTS[layout](maps[i : i + 1])[0] for i in range(12)}
    features = imagenet(folder_of(tmp_path / "maps", **files), d=9)
    np.testing.assert_allclose(all_rows(features), pca(maps, 9), atol=1e-5)
    assert list(features.names) == sorted(files)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    side=st.integers(1, 4),
    channels=st.integers(5, 8),
    block=st.integers(1, 2_000),
    data=st.data(),
)
def test_imagenet_does_not_depend_on_files_or_blocks(tmp_path_factory, sizes, side, channels, block, data):
    n = sum(sizes) + 5
    maps = activations(3, n, side, channels)
    files = dict(zip("abcdef", np.split(maps, np.cumsum(sizes)), strict=False))
    d = data.draw(st.integers(1, min(channels, n - 1)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lazygumbel_evaluation.images.activations.BLOCK_BYTES", block)
        features = imagenet(folder_of(tmp_path_factory.mktemp("maps"), **files), d=d)
    np.testing.assert_allclose(all_rows(features), pca(maps, d), atol=1e-4)


def test_imagenet_far_from_the_origin(tmp_path):
    maps = 1e7 + activations(4, 40, 2, 6).astype(np.float64)
    features = imagenet(folder_of(tmp_path / "maps", a=maps), d=4)
    np.testing.assert_allclose(all_rows(features), pca(maps, 4), atol=1e-4)
    # The textbook difference of second moments has lost the covariance.
    averages = maps.mean(axis=(1, 2))
    textbook = averages.T @ averages / 40 - np.outer(averages.mean(axis=0), averages.mean(axis=0))
    assert not np.allclose(textbook, np.cov(averages.T, bias=True), rtol=0.1)


def test_imagenet_holds_a_block_at_a_time(tmp_path, monkeypatch):
    def traced(call) -> int:
        tracemalloc.start()
        call()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    monkeypatch.setattr("lazygumbel_evaluation.images.activations.BLOCK_BYTES", 2**16)
    maps = activations(5, 300, 7, 32)
    files = {f"part{i}": part for i, part in enumerate(np.split(maps, [200, 250]))}
    folder = folder_of(tmp_path / "maps", **files)
    progress = Recorder()
    assert traced(lambda: imagenet(folder, d=4, progress=progress)) < maps.nbytes / 4
    assert progress.stages == [[3, 3], [300, 300], [300, 300]]
    assert traced(lambda: [np.load(path) for path in folder.iterdir()]) > maps.nbytes * 0.99


def test_imagenet_folder_refusals(tmp_path):
    with pytest.raises(ValueError, match=r"folder: there is no folder .*maps"):
        imagenet(tmp_path / "maps")
    with pytest.raises(ValueError, match=r"folder: .* holds no \.npy files"):
        imagenet(tmp_path)
    for d in (0, 2.5):
        with pytest.raises(ValueError, match=r"^d must be"):
            imagenet(tmp_path, d=d)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((4, 2, 2, 3), np.int32), "may be float16, float32 or float64, not int32"),
        (np.zeros((4, 3, 3, 3), np.float32), r"shape \(4, 3, 3, 3\) is none of .*told from the channels"),
        (np.zeros((4, 2, 3, 5), np.float32), r"shape \(4, 2, 3, 5\) is none of"),
        (np.zeros((1, 4, 2, 2, 3), np.float32), r"shape \(1, 4, 2, 2, 3\) is none of"),
        (np.zeros((), np.float32), r"shape \(\) is none of"),
        (np.zeros((0, 2, 2, 3), np.float32), r"no activations in shape \(0, 2, 2, 3\)"),
        (np.zeros((4, 2, 2, 5), np.float32), r"5 channels, but a\.npy has 3"),
        (np.full((4, 2, 2, 3), np.nan, np.float32), "NaN or infinity in image 0"),
        (np.array([[np.inf, -np.inf], [1, 1]])[None, :, :, None] * np.ones(3), "NaN or infinity in image 0"),
        (np.array([1, 2, np.inf], np.float16)[:, None, None, None] * np.ones((2, 2, 3), np.float16), "in image 2"),
    ],
)
def test_imagenet_names_bad_files(tmp_path, monkeypatch, array, message):
    monkeypatch.setattr("lazygumbel_evaluation.images.activations.BLOCK_BYTES", 48)  # two images a block
    folder = folder_of(tmp_path / "maps", a=activations(6, 5, 2, 3), b=array, c=activations(7, 5, 2, 3))
    with pytest.raises(ValueError, match=rf"folder: .*b\.npy: .*{message}"):
        imagenet(folder, d=2)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x01\x00\x02\x00((", b"\xff" * 99, None])
def test_imagenet_names_files_that_are_broken(tmp_path, content):
    folder = folder_of(tmp_path / "maps", a=activations(6, 5, 2, 3), b=activations(7, 5, 2, 3))
    save(folder / "b.npy", (folder / "b.npy").read_bytes()[:-1] if content is None else content)
    with pytest.raises(ValueError, match=r"folder: .*b\.npy: "):
        imagenet(folder, d=2)


def test_imagenet_with_too_few_directions(tmp_path):
    folder = folder_of(tmp_path / "maps", a=activations(6, 5, 2, 8))
    for d in (5, 256):
        with pytest.raises(ValueError, match=f"d is {d}, but 5 images of 8 channels have at most 4 axes"):
            imagenet(folder, d=d)
    flat = np.random.default_rng(0).normal(size=(20, 3)) @ np.random.default_rng(1).normal(size=(3, 8)) + 4
    folder_of(folder, a=flat)
    assert imagenet(folder, d=3).d == 3
    with pytest.raises(ValueError, match="d is 4, but the images differ in 3 directions only"):
        imagenet(folder, d=4)
    rng = np.random.default_rng(2)
    pixels = rng.normal(size=(49, 8)) + 4
    shuffled = np.stack([rng.permutation(pixels) for _ in range(20)]).reshape(20, 7, 7, 8)
    assert np.ptp(shuffled.mean(axis=(1, 2)), axis=0).max() > 0  # averages that differ by their rounding alone
    folder_of(folder, a=shuffled)
    with pytest.raises(ValueError, match="differ in 0 directions only"):
        imagenet(folder, d=1)


def test_imagenet_refuses_the_average_image(tmp_path):
    cross = 7 + np.array([[2.0, 0], [-2, 0], [0, 0], [0, 1], [0, -1]])
    with pytest.raises(ValueError, match="folder: b:0 is the average image"):
        imagenet(folder_of(tmp_path / "maps", a=cross[:2], b=cross[2:]), d=2)


# The network: torchvision is a stand-in, torch and the images are real


@pytest.fixture
def photographs(tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    for i, (name, size) in enumerate({"x/b.JPEG": (300, 400), "y/a.png": (640, 256), "y/c.jpg": (64, 50)}.items()):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = image.fromarray(rng.integers(0, 256, size=(4, 5, 3)).astype(np.uint8)).resize(size)
        (coarse.convert("L") if i == 2 else coarse).save(path)
    save(tmp_path / "images" / "notes.txt", b"not an image")
    return tmp_path / "images"


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A network built as torchvision builds its own: the last two children are the average and the classifier."""
    torch = pytest.importorskip("torch")

    def resnet152(*, weights):
        assert weights is None, "nothing may be downloaded"
        parts = {
            "conv1": torch.nn.Conv2d(3, 6, 32, stride=32),
            "drop": torch.nn.Dropout(0.5),  # must be off
            "relu": torch.nn.ReLU(),
            "avgpool": torch.nn.AdaptiveAvgPool2d((1, 1)),
            "fc": torch.nn.Linear(6, 10),
        }
        module = torch.nn.Module()
        for name, part in parts.items():
            module.add_module(name, part)
        return module

    torchvision, models = ModuleType("torchvision"), ModuleType("torchvision.models")
    torchvision.models, models.resnet152 = models, resnet152
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)
    trained = resnet152(weights=None)
    with torch.no_grad():
        weight = np.random.default_rng(1).normal(size=(6, 3, 32, 32)) / 32
        trained.conv1.weight.copy_(torch.from_numpy(weight))
    torch.save(trained.state_dict(), tmp_path / "weights.pth")
    return trained


def seen_by(network, path: Path) -> np.ndarray:
    """The maps, (7, 7, 6), of an image prepared in plain steps."""
    import torch
    from PIL import Image

    image = Image.open(path).convert("RGB")
    w, h = image.size
    size = (256, int(256 * h / w)) if w <= h else (int(256 * w / h), 256)
    pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR)).astype(np.float32) / 255
    top, left = round((size[1] - 224) / 2), round((size[0] - 224) / 2)
    middle = torch.from_numpy(pixels[top : top + 224, left : left + 224]).permute(2, 0, 1)[None]
    mean, deviation = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
    with torch.no_grad():
        return network.relu(network.conv1((middle - mean) / deviation))[0].permute(1, 2, 0).numpy()


@pytest.mark.parametrize("maps", [False, True])
def test_imagenet_activations(tmp_path, photographs, network, maps):
    out, progress = tmp_path / "out" / "maps", Recorder()
    arguments = {"weights": tmp_path / "weights.pth", "maps": maps, "batch": 2, "progress": progress}
    imagenet_activations(photographs, out, **arguments)
    assert sorted(path.name for path in out.iterdir()) == ["a.npy", "b.npy", "c.npy"]
    expected = {path.stem: seen_by(network, path) for path in photographs.glob("*/*")}
    for stem, whole in expected.items():
        written = np.load(out / f"{stem}.npy")
        assert written.dtype == np.float32
        np.testing.assert_allclose(written, whole if maps else whole.mean(axis=(0, 1)), rtol=1e-4, atol=1e-5)
    assert not np.allclose(expected["a"].mean(axis=(0, 1)), expected["b"].mean(axis=(0, 1)), rtol=1e-2)

    features = imagenet(out, d=2)
    assert list(features.names) == ["a", "b", "c"]
    np.testing.assert_allclose(all_rows(features), pca(np.stack([expected[s] for s in "abc"]), 2), atol=1e-3)

    (out / "b.npy").unlink()
    imagenet_activations(photographs, out, **arguments)  # taken up again
    assert (out / "b.npy").exists() and progress.stages == [[3, 3], [1, 1]]


def test_imagenet_activations_leaves_no_half_written_file(tmp_path, photographs, network, monkeypatch):  # noqa: ARG001
    def full(file, array):
        file.write(array.tobytes()[:-1])
        raise OSError("no space left")

    out, weights = tmp_path / "out", tmp_path / "weights.pth"
    with monkeypatch.context() as patch:
        patch.setattr(np, "save", full)
        with pytest.raises(OSError, match="no space left"):
            imagenet_activations(photographs, out, weights=weights)
    imagenet_activations(photographs, out, weights=weights)
    assert [np.load(path).shape for path in out.iterdir()] == [(6,)] * 3


def test_imagenet_activations_refusals(tmp_path, photographs, network):  # noqa: ARG001  # the stand-in is in place
    import torch

    weights, out = tmp_path / "weights.pth", tmp_path / "out"

    def refused(message: str, images: Path = photographs, **arguments) -> None:
        with pytest.raises(ValueError, match=message):
            imagenet_activations(images, out, **({"weights": weights} | arguments))
        assert not list(out.glob("*.npy"))

    refused("network must be one of resnet50, resnet101, resnet152, not 'vgg'", network="vgg")
    refused("batch must be at least 1, not 0", batch=0)
    refused("images: there is no folder .*nothing", images=tmp_path / "nothing")
    refused(r"images: .* holds no files that end in \.jpeg", images=folder_of(tmp_path / "empty"))
    refused("weights: there is no file", weights=tmp_path / "nothing.pth")
    for content in (b"", b"junk", weights.read_bytes()[:-99]):
        refused(r"weights: .*bad\.pth: ", weights=save(tmp_path / "bad.pth", content))
    for other in (torch.nn.Linear(2, 2).state_dict(), [1, 2]):
        torch.save(other, tmp_path / "bad.pth")
        refused(r"weights: .*bad\.pth: ", weights=tmp_path / "bad.pth")
    broken = photographs / "x" / "broken.jpg"
    for content in (b"", b"junk", (photographs / "x" / "b.JPEG").read_bytes()[:-500]):
        save(broken, content)
        refused(r"images: .*broken\.jpg: ")
    broken.rename(photographs / "y" / "b.png")
    refused(r"images: .*y.b\.png and .*x.b\.JPEG would be written to the same file")


@pytest.mark.parametrize("module", ["torch", "torchvision", "PIL.Image"])
def test_imagenet_activations_without_an_extra(tmp_path, monkeypatch, module):
    torchvision = ModuleType("torchvision")
    torchvision.models = ModuleType("models")

    def absent(name: str):
        if name == module:
            raise ImportError(name)
        return torchvision

    monkeypatch.setattr(extras, "import_module", absent)
    with pytest.raises(ImportError, match=rf"^{module} is needed.*pip install 'lazygumbel\[images\]'"):
        imagenet_activations(tmp_path, tmp_path, weights=tmp_path / "weights.pth")
