"""Images as files that are small, to be carried where they are trained on.

Beside `train.py` there: imports nothing but NumPy and Pillow.
"""

import io
import json
import pathlib
from collections.abc import Sequence

import numpy as np
from PIL import Image


def write_images(
    splits: Sequence[tuple[np.ndarray, np.ndarray]], first: int, last: int, folder: pathlib.Path
) -> None:
    """Writes some of the training images and then the test images, as lossless WebP.

    Args:
        splits: images, uint8 `(n, 32, 32, 3)`, and labels, of training and test.
        first: of all images, training before test.
        last: the one after them.
        folder: of a file for every 64 images, which are put below one another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images = np.concatenate([x for x, _ in splits])
    np.savez_compressed(folder / "labels.npz", y=np.concatenate([y for _, y in splits]))
    packed = []
    for begin in range(first, last, 64):
        rows = images[begin : min(begin + 64, last)]
        file = io.BytesIO()
        strip = Image.fromarray(rows.reshape(-1, *rows.shape[2:]))
        strip.save(file, "WEBP", lossless=True, quality=80, method=4)
        packed.append(file.getvalue())
    (folder / f"images_{first}.bin").write_bytes(b"".join(packed))
    (folder / f"images_{first}.json").write_text(json.dumps([len(each) for each in packed]))


def read_images(folders: list[pathlib.Path]) -> tuple[np.ndarray, np.ndarray]:
    """All images, uint8, and their labels, of the folders that `write_images` wrote."""
    found = []
    files = [file for folder in folders for file in folder.glob("images_*.json")]
    for file in sorted(files, key=lambda file: int(file.stem.split("_")[1])):
        packed, begin = file.with_suffix(".bin").read_bytes(), 0
        for size in json.loads(file.read_text()):
            strip = np.asarray(Image.open(io.BytesIO(packed[begin : begin + size])))
            found.append(strip.reshape(-1, strip.shape[1], strip.shape[1], 3))
            begin += size
    images, labels = np.concatenate(found), np.load(folders[0] / "labels.npz")["y"]
    if len(images) != len(labels):
        raise ValueError(f"expected {len(labels)} images in {folders}, received {len(images)}")
    return images, labels
