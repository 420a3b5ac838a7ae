#!/usr/bin/env python3
"""Writes pictures of many kinds, and what Pillow reads from each, for pillow_test.cc.

  pillow_cases.py FOLDER

NAME.file is the picture; NAME.WIDTHxHEIGHT.TOLERANCE.rgb what Pillow reads, upright and over white.
resize.WIDTHxHEIGHT.FILTER.rgb are sizes of the picture "source". Exits with 77 without Pillow.
"""

import io
import pathlib
import random
import struct
import sys
import zlib

try:
    from PIL import Image, ImageDraw, ImageOps
except ImportError:
    sys.exit(77)

FOLDER = pathlib.Path(sys.argv[1])
RANDOM = random.Random(51)


def scene(width, height, mode="RGB"):
    """Shapes with edges, gradients and noise, so that every decoder path has work."""
    image = Image.linear_gradient("L").resize((width, height)).convert("RGB")
    draw = ImageDraw.Draw(image, "RGBA")
    for _ in range(12):
        x, y = RANDOM.randrange(width), RANDOM.randrange(height)
        color = tuple(RANDOM.randrange(256) for _ in range(3))
        draw.ellipse((x, y, x + width // 3, y + height // 3), fill=color)
    for _ in range(width * height // 20):
        image.putpixel((RANDOM.randrange(width), RANDOM.randrange(height)),
                       tuple(RANDOM.randrange(256) for _ in range(3)))
    if mode in ("RGBA", "LA"):
        image = image.convert(mode)
        image.putalpha(Image.radial_gradient("L").resize((width, height)))
        return image
    return image.convert(mode)


def over_white(image):
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        rgba = image.convert("RGBA")
        white = Image.new("RGBA", rgba.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, rgba).convert("RGB")
    return image.convert("RGB")


def write_rgb(name, image):
    (FOLDER / f"{name}.rgb").write_bytes(image.tobytes())


def case(name, data, tolerance=0):
    (FOLDER / f"{name}.file").write_bytes(data)
    image = Image.open(io.BytesIO(data))
    image.seek(0)
    image = over_white(ImageOps.exif_transpose(image))
    write_rgb(f"{name}.{image.width}x{image.height}.{tolerance}", image)


def saved(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def png_16(width, height, color_type, interlaced=0):
    """A PNG of 16 bits per channel, which Pillow reads and does not write."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    channels = {2: 3, 6: 4}[color_type]
    rows = b"".join(b"\0" + RANDOM.randbytes(width * channels * 2) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 16, color_type, 0, 0, interlaced)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data.tobytes()


def png_cases():
    for mode in ("1", "L", "P", "RGB", "RGBA", "LA"):
        case(f"png-{mode}", saved(scene(61, 47, mode), "PNG"), 1 if "A" in mode else 0)
    case("png-one-pixel", saved(scene(5, 5).crop((0, 0, 1, 1)), "PNG"))
    case("png-tall", saved(scene(3, 301), "PNG"))
    case("png-transparent-color", saved(scene(20, 20, "P"), "PNG", transparency=3))
    case("png-bits-4", saved(scene(33, 20).quantize(16), "PNG", bits=4))
    case("png-bits-2", saved(scene(33, 20).quantize(4), "PNG", bits=2))
    case("png-16", png_16(23, 17, 2))
    case("png-16-alpha", png_16(23, 17, 6), 1)
    case("png-exif", saved(scene(31, 20), "PNG", exif=exif(6)))


def jpeg_cases():
    for quality, sampling in ((95, 0), (75, 2), (30, 1)):
        case(f"jpeg-{quality}", saved(scene(61, 47), "JPEG", quality=quality,
                                      subsampling=sampling))
    case("jpeg-grey", saved(scene(40, 41, "L"), "JPEG"))
    case("jpeg-progressive", saved(scene(90, 50), "JPEG", progressive=True))
    case("jpeg-cmyk", saved(scene(45, 33, "CMYK"), "JPEG"))
    case("jpeg-odd", saved(scene(17, 1), "JPEG"))
    case("jpeg-restart", saved(scene(64, 64), "JPEG", restart_marker_rows=1))
    for orientation in range(1, 9):
        case(f"jpeg-exif-{orientation}", saved(scene(31, 20), "JPEG", exif=exif(orientation)))


def webp_cases():
    case("webp-lossless", saved(scene(61, 47), "WEBP", lossless=True))
    case("webp-lossy", saved(scene(61, 47), "WEBP", quality=70), 4)
    case("webp-alpha", saved(scene(61, 47, "RGBA"), "WEBP", lossless=True, exact=True), 1)
    case("webp-exif", saved(scene(31, 20), "WEBP", lossless=True, exif=exif(8)))
    case("webp-animated", saved(scene(40, 30), "WEBP", lossless=True, save_all=True,
                                append_images=[scene(40, 30)]))


def gif_cases():
    case("gif-P", saved(scene(61, 47, "P"), "GIF"))
    case("gif-grey", saved(scene(61, 47, "L"), "GIF", interlace=1))
    case("gif-flat", saved(scene(61, 47).quantize(2), "GIF", interlace=0))
    case("gif-transparent", saved(scene(61, 47).quantize(8), "GIF", transparency=2))
    case("gif-animated", saved(scene(50, 20, "P"), "GIF", save_all=True,
                               append_images=[scene(50, 20, "P")]))


def bmp_cases():
    for mode in ("1", "L", "P", "RGB"):
        case(f"bmp-{mode}", saved(scene(61, 47, mode), "BMP"))
    case("bmp-RGBA", saved(scene(61, 47, "RGBA"), "BMP"), 1)
    rows = b"".join(bytes([0, 4, 1, 2, 3, 4, 5, 7, 0, 0]) for _ in range(6)) + b"\0\1"
    palette = b"".join(bytes([i * 9 % 256, i * 5 % 256, i, 0]) for i in range(256))
    head = struct.pack("<IiiHHIIiiII", 40, 9, 6, 1, 8, 1, len(rows), 0, 0, 256, 0)
    offset = 14 + len(head) + len(palette)
    case("bmp-runs", b"BM" + struct.pack("<IHHI", offset + len(rows), 0, 0, offset) + head +
         palette + rows)


def resizes():
    source = scene(97, 61)
    (FOLDER / "source.file").write_bytes(saved(source, "PNG"))
    filters = {"bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}
    for width, height in ((97, 61), (32, 32), (224, 224), (1, 1), (50, 31), (97, 200), (13, 61)):
        for name, kind in filters.items():
            write_rgb(f"resize.{width}x{height}.{name}", source.resize((width, height), kind))


png_cases()
jpeg_cases()
webp_cases()
gif_cases()
bmp_cases()
resizes()
