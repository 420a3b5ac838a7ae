"""Drawn pictures, and what may be asked about them.

A scene follows from its number alone. Even numbers are for training, and odd ones for tests, so no
test shows a picture that was drawn before."""

import glob
import os
import random
from collections import namedtuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

SIDE = 48
_SCALE = 3  # drawn so much larger, then shrunk, so that edges are smooth

SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
DIGITS = tuple("0123456789")
WORDS = ("cat", "dog", "sun", "box", "yes", "no", "hat", "map")
COLORS = ("red", "green", "blue", "orange", "purple", "black")
COUNTS = ("one", "two", "three", "four", "five", "six")
PLACES = ("left", "right", "top", "bottom", "middle")

# A picture has four rows of embeddings; each tells one of these.
ROWS = (SHAPES + DIGITS + WORDS, COLORS, COUNTS, PLACES)
VALUES = [value for row in ROWS for value in row]
FIRST = [sum(map(len, ROWS[:row])) for row in range(len(ROWS))]
# Each row also has a number that is always 1: it learns what all embeddings of the row share.
N_NUMBERS = len(VALUES) + len(ROWS)

_RGB = {"red": (215, 30, 30), "green": (30, 150, 45), "blue": (35, 70, 215),
        "orange": (245, 130, 15), "purple": (135, 40, 160), "black": (15, 15, 15)}
_GROUNDS = ((250, 250, 250), (235, 235, 235), (225, 235, 250), (250, 240, 220), (225, 245, 225))
_CENTERS = {"left": (0.22, 0.5), "right": (0.78, 0.5), "top": (0.5, 0.22),
            "bottom": (0.5, 0.78), "middle": (0.5, 0.5)}
_FONTS = ("DejaVuSans DejaVuSans-Bold DejaVuSans-Oblique DejaVuSansMono-Bold DejaVuSerif "
          "DejaVuSerif-Bold Lato-Regular Lato-Bold Lato-Black").split()

# `thing`: a shape, a digit or a word. `place`: where a single one is, or None.
Scene = namedtuple("Scene", "kind thing color count place")
Question = namedtuple("Question", "kind text answer accepted")


def fonts(folder="/usr/share/fonts"):
    found = {os.path.basename(path)[:-4]: path
             for path in glob.glob(os.path.join(folder, "**", "*.ttf"), recursive=True)}
    paths = [found[name] for name in _FONTS if name in found]
    if not paths:
        raise FileNotFoundError(f"{folder} has no font of DejaVu or Lato: install fonts-dejavu-core")
    return paths


class Artist:
    def __init__(self, folder="/usr/share/fonts"):
        self.paths, self.known = fonts(folder), {}

    def font(self, path, size):
        if (path, size) not in self.known:
            self.known[path, size] = ImageFont.truetype(path, size)
        return self.known[path, size]

    def draw(self, number):
        """The scene of that number, and its picture as an array of SIDE * SIDE colors."""
        rng = random.Random(f"scene {number}")
        kind = rng.choices(("shapes", "digit", "word"), (5, 3, 2))[0]
        color = rng.choice(COLORS)
        mask = Image.new("L", (SIDE * _SCALE, SIDE * _SCALE))
        if kind == "shapes":
            scene = _draw_shapes(rng, mask, color)
        else:
            scene = self._draw_text(rng, mask, kind, color)
        return scene, _paint(rng, mask, _RGB[color])

    def _draw_text(self, rng, mask, kind, color):
        text = rng.choice(DIGITS if kind == "digit" else WORDS)
        size = rng.randint(26, 38) if kind == "digit" else rng.randint(16, 20)
        font = self.font(rng.choice(self.paths), size * _SCALE)
        left, top, right, bottom = font.getbbox(text)
        pad = size * _SCALE // 3
        width, height = right - left + 2 * pad, bottom - top + 2 * pad
        ink = Image.new("L", (width, height))
        ImageDraw.Draw(ink).text((pad - left, pad - top), text, fill=255, font=font)
        turn = np.radians(rng.uniform(-8, 8) if kind == "digit" else rng.uniform(-4, 4))
        ink = _turned(ink, turn, rng.uniform(-0.15, 0.15))
        x, y = _center(rng, "middle", 3)
        mask.paste(ink, (round(x - width / 2), round(y - height / 2)), ink)
        return Scene(kind, text, color, 1, None)


def _turned(ink, turn, slant):
    cos, sin, (x, y) = np.cos(turn), np.sin(turn), (ink.width / 2, ink.height / 2)
    a, b, c, d = cos, sin + slant * cos, -sin, cos - slant * sin
    return ink.transform(ink.size, Image.Transform.AFFINE,
                         (a, b, x - a * x - b * y, c, d, y - c * x - d * y),
                         Image.Resampling.BILINEAR)


def _center(rng, place, jitter):
    at = [c * SIDE + rng.uniform(-jitter, jitter) for c in _CENTERS[place]]
    return at[0] * _SCALE, at[1] * _SCALE


def _draw_shapes(rng, mask, color):
    shape = rng.choice(SHAPES)
    count = rng.choice((1, 1, 1, 2, 3, 4, 5, 6))
    if count == 1:
        place = rng.choice(PLACES)
        radius = rng.uniform(6, 10)
        _draw_shape(rng, mask, shape, *_center(rng, place, 3), radius * _SCALE)
        return Scene("shapes", shape, color, 1, place)
    for x, y, radius in _spots(rng, count):
        _draw_shape(rng, mask, shape, x * _SCALE, y * _SCALE, radius * _SCALE)
    return Scene("shapes", shape, color, count, None)


def _spots(rng, count):
    """Circles that do not touch: their centers and radii."""
    spots = []
    while len(spots) < count:
        radius = rng.uniform(4.5, 6.5)
        x, y = (rng.uniform(radius + 1, SIDE - radius - 1) for _ in range(2))
        if all(np.hypot(x - a, y - b) > radius + r + 2 for a, b, r in spots):
            spots.append((x, y, radius))
        elif rng.random() < 0.01:
            spots = []
    return spots


def _draw_shape(rng, mask, shape, x, y, r):
    pen = ImageDraw.Draw(mask)
    turn = rng.uniform(-0.25, 0.25)

    def around(n, radii, first):
        angles = [first + turn + 2 * np.pi * i / n for i in range(n)]
        return [(x + radii[i % len(radii)] * np.sin(a), y - radii[i % len(radii)] * np.cos(a))
                for i, a in enumerate(angles)]

    if shape == "circle":
        pen.ellipse((x - r, y - r, x + r, y + r), fill=255)
    elif shape == "ring":
        pen.ellipse((x - r, y - r, x + r, y + r), outline=255, width=max(2, round(0.35 * r)))
    elif shape == "square":
        pen.polygon(around(4, (r,), np.pi / 4), fill=255)
    elif shape == "triangle":
        pen.polygon(around(3, (r,), 0), fill=255)
    elif shape == "star":
        pen.polygon(around(10, (r, 0.42 * r), 0), fill=255)
    else:
        for half in ((0.3 * r, r), (r, 0.3 * r)):
            corners = [(half[0] * a, half[1] * b) for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
            pen.polygon([(x + a * np.cos(turn) - b * np.sin(turn),
                          y + a * np.sin(turn) + b * np.cos(turn)) for a, b in corners], fill=255)


def _paint(rng, mask, rgb):
    ground = np.array(rng.choice(_GROUNDS), np.float32)
    shade = np.float32([rng.uniform(-14, 14) for _ in range(3)])
    ink = np.array(rgb, np.float32) + np.float32([rng.uniform(-14, 14) for _ in range(3)])
    share = np.asarray(mask.resize((SIDE, SIDE), Image.Resampling.LANCZOS), np.float32) / 255
    slope = np.linspace(-1, 1, SIDE, dtype=np.float32) * rng.uniform(-12, 12)
    paper = ground + shade + (slope[:, None] if rng.random() < 0.5 else slope[None, :])[..., None]
    picture = paper + share[..., None] * (ink - paper)
    noise = np.random.default_rng(rng.getrandbits(32))
    picture += noise.normal(0, rng.uniform(0, 4), (SIDE, SIDE, 1)).astype(np.float32)
    return np.clip(np.round(picture), 0, 255).astype(np.uint8)


def target(scene):
    """One value of each row, as numbers into VALUES; -1 where the scene has none."""
    values = (scene.thing, scene.color, COUNTS[scene.count - 1], scene.place)
    return [-1 if value is None else FIRST[row] + ROWS[row].index(value)
            for row, value in enumerate(values)]


_ASKED = {
    "what": ("What is it?", "What is this?", "What do you see?", "What is in the picture?"),
    "color": ("What color is it?", "Which color do you see?", "Tell me the color."),
    "how many": ("How many are there?", "How many do you see?", "Count them."),
    "where": ("Where is it?", "In which part of the picture is it?"),
    "digit": ("Which digit is it?", "What digit do you see?", "Which number is shown?"),
    "word": ("Which word is it?", "What does it say?", "Read the word."),
}


def _sentence(text):
    return text[0].upper() + text[1:] + "."


def _plural(shape):
    return {"cross": "crosses"}.get(shape, shape + "s")


def _seen(scene):
    """The answer to what a picture shows, and the words that it must have."""
    if scene.kind == "digit":
        return scene.thing + ".", (scene.thing,)
    if scene.kind == "word":
        return scene.thing + ".", (scene.thing,)
    if scene.count == 1:
        article = "an" if scene.color[0] in "aeiou" else "a"
        return f"{article.capitalize()} {scene.color} {scene.thing}.", (scene.color, scene.thing)
    things, count = _plural(scene.thing), COUNTS[scene.count - 1]
    return f"{count.capitalize()} {scene.color} {things}.", (count, scene.color, things)


def questions(scene):
    """All that may be asked about the scene."""
    def some(kind, answer, accepted, texts=()):
        return [Question(kind, text, answer, accepted) for text in (*_ASKED[kind], *texts)]

    seen, accepted = _seen(scene)
    asked = some("what", seen, accepted)
    asked += some("color", _sentence(scene.color), (scene.color,))
    if scene.kind == "shapes":
        count, things = COUNTS[scene.count - 1], _plural(scene.thing)
        asked += some("how many", _sentence(count), (count,),
                      ("How many shapes are there?", f"How many {things} do you see?"))
    if scene.kind in ("digit", "word"):
        asked += some(scene.kind, seen, accepted)
    if scene.place:
        name = scene.thing if scene.kind == "shapes" else scene.kind
        asked += some("where", _sentence(scene.place), (scene.place,), (f"Where is the {name}?",))
    return asked


def ask(scene, rng, n):
    """`n` questions about the scene, of different kinds."""
    asked = questions(scene)
    kinds = rng.sample(sorted({question.kind for question in asked}), n)
    return [rng.choice([q for q in asked if q.kind == kind]) for kind in kinds]
