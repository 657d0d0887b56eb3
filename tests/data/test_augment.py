import numpy as np
import pytest
import torch
import torchvision
from torchvision.transforms import functional

from hierbench.data import augment
from hierbench.data.augment import PadAndCrop, RandomResizedCrop, normalise, random_parts


def crops(image, pad, mode):
    """All (2 pad + 1)^2 crops of a padded image, as {bytes: (y, x)}."""
    padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)), mode="constant" if mode == "zero" else mode)
    height, width = image.shape[1:]
    return {
        padded[:, y : y + height, x : x + width].tobytes(): (y, x)
        for y in range(2 * pad + 1)
        for x in range(2 * pad + 1)
    }


@pytest.mark.parametrize("mode", ["reflect", "zero"])
@pytest.mark.parametrize(("pad", "size"), [(1, (5, 7)), (4, (9, 8))])
def test_every_image_is_a_crop_of_the_padded_or_flipped_one(mode, pad, size):
    torch.manual_seed(0)
    images = torch.randint(0, 256, (3, 3, *size), dtype=torch.uint8)
    rows = torch.arange(3).repeat(400)
    out = PadAndCrop(pad, mode, flip=True)(images, rows)
    assert out.dtype == torch.uint8
    seen, clear = set(), []
    for image, row in zip(out.numpy(), rows.tolist(), strict=True):
        source = images[row].numpy()
        straight, flipped = crops(source, pad, mode), crops(source[:, :, ::-1], pad, mode)
        key = image.tobytes()
        assert key in straight or key in flipped
        if (key in flipped) != (key in straight):  # a reflection can look like a flip
            clear.append(key in flipped)
        seen.add(straight.get(key, flipped.get(key)))
    assert len(seen) == (2 * pad + 1) ** 2  # every offset comes up, the last one too
    assert len(clear) > 300 and 0.42 < np.mean(clear) < 0.58


def test_without_padding_and_flips_the_images_are_picked():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    assert torch.equal(PadAndCrop(0, "zero", flip=False)(images, torch.tensor([3, 1])), images[[3, 1]])
    kinds = {image.numpy().tobytes() for image in PadAndCrop(0, "zero", flip=True)(images, torch.full((50,), 2))}
    assert kinds == {images[2].numpy().tobytes(), images[2].flip(2).numpy().tobytes()}


def test_normalise():
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4])
    out = normalise(images, mean, std)
    expected = (images.double() / 255 - mean[:, None, None]) / std[:, None, None]
    assert out.dtype == torch.float32 and out.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(out.double(), expected, atol=1e-6)


def test_without_the_last_offset_it_never_comes_up():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (1, 3, 9, 9), dtype=torch.uint8)
    offsets = crops(images[0].numpy(), 4, "reflect")
    crop = PadAndCrop(4, "reflect", flip=False, last_offset=False)
    seen = {offsets[image.numpy().tobytes()] for image in crop(images, torch.zeros(3000).long())}
    assert seen == {(y, x) for y in range(8) for x in range(8)}


@pytest.mark.parametrize("size", [(48, 48), (40, 56)])
def test_random_resized_crop_is_torchvision_s(monkeypatch, size):
    torch.manual_seed(0)
    images = torch.randint(0, 256, (4, 3, *size), dtype=torch.uint8)
    rows = torch.arange(4).repeat(8)
    drawn = []
    monkeypatch.setattr(augment, "random_parts", lambda *args: drawn.append(random_parts(*args)) or drawn[-1])
    out = RandomResizedCrop(flip=False)(images, rows)
    assert out.dtype == torch.float32 and out.shape == (32, 3, *size)
    for image, row, top, left, *part in zip(out.numpy(), rows, *(part.tolist() for part in drawn[0]), strict=True):
        picture = functional.to_pil_image(images[row])
        expected = np.asarray(functional.resized_crop(picture, top, left, *part, list(size))).transpose(2, 0, 1)
        assert np.abs(image - expected).max() <= 1.01  # PIL rounds to whole grey values, after each of its two passes


def test_the_parts_have_torchvision_s_distribution():
    torch.manual_seed(0)
    ours = torch.stack(random_parts(4000, 224, 224, torch.device("cpu"))).double()
    picture = torch.empty(3, 224, 224)
    theirs = [
        torchvision.transforms.RandomResizedCrop.get_params(picture, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(4000)
    ]
    theirs = torch.tensor(theirs, dtype=torch.float64).T
    top, left, height, width = ours
    assert (top >= 0).all() and (left >= 0).all() and (top + height <= 224).all() and (left + width <= 224).all()
    for mine, yours in zip(ours, theirs, strict=True):
        for share in (0.05, 0.25, 0.5, 0.75, 0.95):
            assert mine.quantile(share).item() == pytest.approx(yours.quantile(share).item(), abs=6.0)


def test_a_part_that_never_fits_is_the_whole_image():
    parts = torch.stack(random_parts(2000, 8, 100, torch.device("cpu")))  # sides in a ratio of 12
    is_whole = (parts[2] == 8) & (parts[3] == 100)
    assert is_whole.any() and (parts[0][is_whole] == 0).all() and (parts[1][is_whole] == 0).all()


def test_random_resized_crop_flips_half():
    torch.manual_seed(0)
    ramp = torch.arange(64, dtype=torch.uint8).expand(1, 3, 64, 64).clone()
    out = RandomResizedCrop(flip=True)(ramp, torch.zeros(400, dtype=torch.long))
    falling = (out[:, 0, 0, 0] > out[:, 0, 0, -1]).double().mean().item()
    assert 0.42 < falling < 0.58
