"""Second step: the embeddings that the language model understands best as each of VALUES.

They begin as those of the words themselves. Noise on them leaves room for the encoder's errors."""

import random

import jax
import jax.numpy as jnp
import numpy as np

import encoder
import scenes
import training
from eye import targets_of
from language import BRANCHES

BATCH, LENGTH, MOST_ANSWERS = 4, 66, 18
_RATE = 1e-2
_NOISE = 0.08


def begin(language):
    """The embedding of each of N_NUMBERS; a row's is the sum of those of its numbers."""
    table, tokens = language.weights["embeddings"], language.tokens

    def word(value):
        begins = value if value in scenes.WORDS else value.capitalize()
        return (table[tokens.of(begins)[0]] + table[tokens.of(" " + value)[-1]]) / 2

    words = np.stack([word(value) for value in scenes.VALUES])
    return np.pad(words, ((0, len(scenes.ROWS)), (0, 0))).astype(np.float32)


def random_scene(rng):
    """A scene that nobody has to draw."""
    kind = rng.choice(("shapes", "shapes", "digit", "word"))
    color = rng.choice(scenes.COLORS)
    if kind != "shapes":
        thing = rng.choice(scenes.DIGITS if kind == "digit" else scenes.WORDS)
        return scenes.Scene(kind, thing, color, 1, None)
    count = rng.choice((1, 1, 1, 2, 3, 4, 5, 6))
    place = rng.choice(scenes.PLACES) if count == 1 else None
    return scenes.Scene(kind, rng.choice(scenes.SHAPES), color, count, place)


def make_step(language):
    def loss_of(codes, weights, cache, sums, batch):
        return language.loss(weights, cache, sums @ codes, batch)

    def step(codes, moments, weights, cache, sums, batch, rate):
        (loss, right), grads = jax.value_and_grad(loss_of, has_aux=True)(
            codes, weights, cache, sums, batch)
        return *training.adam(codes, grads, moments, rate), loss, right

    return jax.jit(step)


def draw(language, rng):
    shown = [random_scene(rng) for _ in range(BATCH)]
    sums = targets_of(shown)[0]
    noise = np.random.default_rng(rng.getrandbits(32)).normal(0, _NOISE, sums.shape)
    asked = [scenes.ask(scene, rng, BRANCHES) for scene in shown]
    return (sums + noise).astype(np.float32), language.batch(asked, encoder.N_ROWS, LENGTH, MOST_ANSWERS)


def train(path, minutes, language, log):
    state = training.load(path)
    if state is None:
        codes = begin(language)
        state = {"codes": codes, "moments": training.adam_begin(codes), "spent": 0.0, "steps": 0}
    clock = training.Clock(minutes, state["spent"], _RATE)
    codes, moments, steps = state["codes"], state["moments"], state["steps"]
    if clock.is_over():
        return codes
    step, told, saved = make_step(language), [], clock.spent()
    rng = random.Random(steps)
    while True:
        codes, moments, loss, right = step(codes, moments, language.weights, language.cache,
                                           *draw(language, rng), clock.rate_now())
        steps += 1
        told.append((float(loss), float(right)))
        over = clock.is_over()
        if over or clock.spent() - saved > 30:
            saved = clock.spent()
            training.save(path, {"codes": codes, "moments": moments, "spent": saved, "steps": steps})
            loss, right = np.mean(told, 0)
            told = []
            log(f"codes: {saved / 60:.1f} minutes, step {steps}, loss {loss:.3f}, "
                f"{right:.3f} of the answers' tokens")
        if over:
            return jax.tree.map(np.asarray, codes)
