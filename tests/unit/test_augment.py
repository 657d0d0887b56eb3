import numpy as np
import pytest
import torch

from hierbench.data.augment import Augmentation, normalise

NUMPY_MODE = {"reflect": "reflect", "zero": "constant"}


def crops(image, pad, mode):
    """All (2 pad + 1)^2 crops of a padded image, as {bytes: (y, x)}."""
    padded = np.pad(image, ((0, 0), (pad, pad), (pad, pad)), mode=NUMPY_MODE[mode])
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
    out = Augmentation(pad, mode, flip=True)(images, rows)
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


def test_without_augmentation_the_images_are_picked():
    images = torch.randint(0, 256, (5, 3, 4, 4), dtype=torch.uint8)
    assert torch.equal(Augmentation(0, "zero", flip=False)(images, torch.tensor([3, 1])), images[[3, 1]])


def test_flip_alone():
    torch.manual_seed(0)
    images = torch.randint(0, 256, (1, 3, 4, 4), dtype=torch.uint8)
    out = Augmentation(0, "zero", flip=True)(images, torch.zeros(50, dtype=torch.long))
    kinds = {bytes(image.numpy().tobytes()) for image in out}
    assert kinds == {images[0].numpy().tobytes(), images[0].flip(2).numpy().tobytes()}


def test_normalise():
    images = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4])
    out = normalise(images, mean, std)
    expected = (images.double() / 255 - mean[:, None, None]) / std[:, None, None]
    assert out.dtype == torch.float32 and out.is_contiguous(memory_format=torch.channels_last)
    assert torch.allclose(out.double(), expected, atol=1e-6)
