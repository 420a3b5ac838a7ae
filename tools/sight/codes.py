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
    if clock.is_over():
        return state["codes"]
    learn, rng = make_step(language), random.Random(state["steps"])

    def step():
        state["codes"], state["moments"], loss, right = learn(
            state["codes"], state["moments"], language.weights, language.cache,
            *draw(language, rng), clock.rate_now())
        state["steps"] += 1
        return float(loss), float(right)

    def tell(minutes, means):
        log(f"codes: {minutes:.1f} minutes, step {state['steps']}, loss {means[0]:.3f}, "
            f"{means[1]:.3f} of the answers' tokens")

    training.run(clock, step, lambda spent: training.save(path, {**state, "spent": spent}), tell,
                 pause=30)
    return jax.tree.map(np.asarray, state["codes"])
