#!/usr/bin/env python3
"""Writes pictures, and what the published image processors make of them, for processors_test.cc.

  processor_cases.py FOLDER

NAME.png is the picture; NAME.KIND.json the preparation's numbers; NAME.KIND.f32 the values of all views,
each channel by channel, rows from the top. Exits with 77 without Transformers and Pillow.
"""

import json
import pathlib
import random
import sys

try:
    import numpy as np
    from PIL import Image
    from transformers.models.gemma3.image_processing_gemma3 import Gemma3ImageProcessor
    from transformers.models.idefics3.image_processing_idefics3 import Idefics3ImageProcessor
    from transformers.models.pixtral.image_processing_pixtral import PixtralImageProcessor
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
except ImportError:
    sys.exit(77)

FOLDER = pathlib.Path(sys.argv[1])
RANDOM = random.Random(51)
MEAN, STD = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]


def picture():
    width, height = RANDOM.randrange(9, 400), RANDOM.randrange(9, 400)
    values = np.random.default_rng(width * height).integers(0, 256, (7, 9, 3), dtype=np.uint8)
    image = Image.fromarray(values).resize((width, height), Image.BICUBIC)
    noise = np.random.default_rng(height).integers(-20, 20, (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(image, dtype=int) + noise, 0, 255).astype(np.uint8))


def write(name, kind, numbers, views):
    numbers["sizes"] = [[view.shape[2], view.shape[1]] for view in views]
    (FOLDER / f"{name}.{kind}.json").write_text(json.dumps(numbers))
    flat = np.concatenate([np.ascontiguousarray(view, dtype=np.float32).ravel() for view in views])
    (FOLDER / f"{name}.{kind}.f32").write_bytes(flat.tobytes())


def unpatched(patches, grid, patch, merge):
    """Qwen's processor orders pixels by patches already: back to a picture."""
    _, rows, columns = grid
    shape = (rows // merge, columns // merge, merge, merge, 3, 2, patch, patch)
    return (patches.reshape(shape)[..., 0, :, :].transpose(4, 0, 2, 5, 1, 3, 6)
            .reshape(3, rows * patch, columns * patch))


def qwen(name, image):
    numbers = {"patch": 14, "unit": 28, "min_pixels": 28 * 28 * 16, "max_pixels": 28 * 28 * 60}
    processor = Qwen2VLImageProcessor(min_pixels=numbers["min_pixels"],
                                      max_pixels=numbers["max_pixels"], image_mean=MEAN,
                                      image_std=STD)
    out = processor(image, return_tensors="np")
    write(name, "whole", numbers,
          [unpatched(out["pixel_values"], out["image_grid_thw"][0], 14, 2)])


def gemma3(name, image):
    processor = Gemma3ImageProcessor(size={"height": 112, "width": 112}, image_mean=MEAN,
                                     image_std=STD)
    out = processor(image, return_tensors="np")
    write(name, "square", {"patch": 14, "unit": 56, "side": 112}, list(out["pixel_values"]))


def pixtral(name, image):
    processor = PixtralImageProcessor(size={"longest_edge": 160},
                                      patch_size={"height": 16, "width": 16}, image_mean=MEAN,
                                      image_std=STD)
    out = processor(image, return_tensors="np")
    width, height = out["image_sizes"][0][1], out["image_sizes"][0][0]
    write(name, "within", {"patch": 16, "unit": 16, "longest": 160},
          [np.asarray(out["pixel_values"])[0][:, :height, :width]])


def idefics3(name, image):
    processor = Idefics3ImageProcessor(size={"longest_edge": 160},
                                       max_image_size={"longest_edge": 64}, image_mean=MEAN,
                                       image_std=STD)
    out = processor(image, return_tensors="np")
    write(name, "tiles", {"patch": 16, "unit": 32, "side": 64, "longest": 160},
          list(np.asarray(out["pixel_values"])[0]))


for i in range(50):
    one = picture()
    one.save(FOLDER / f"p{i}.png")
    for make in (qwen, gemma3, pixtral, idefics3):
        make(f"p{i}", one)
