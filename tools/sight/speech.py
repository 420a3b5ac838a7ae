"""Third step: the whole encoder learns from what the language model says of its pictures."""

import hashlib
import random

import jax
import numpy as np

import encoder
import scenes
import training
from codes import BATCH, LENGTH, MOST_ANSWERS
from language import BRANCHES

_RATE = 2e-4


def join(eye, codes):
    """The encoder whose rows are sums of codes."""
    return {**eye, "fc": np.asarray(eye["fc"] @ codes, np.float32)}


def make_step(language):
    def loss_of(weights, frozen, cache, pictures, batch):
        return language.loss(frozen, cache, encoder.encode(weights, pictures), batch)

    def step(weights, moments, frozen, cache, pictures, batch, rate):
        (loss, right), grads = jax.value_and_grad(loss_of, has_aux=True)(
            weights, frozen, cache, pictures, batch)
        return *training.adam(weights, grads, moments, rate), loss, right

    return jax.jit(step)


def train(path, minutes, begin, language, log):
    """`begin`: the weights, unless training from these has been saved."""
    leaves = jax.tree.leaves(begin)
    digest = hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()
    state = training.load(path)
    if state is None or state.get("begin") != digest:
        # Numbers of the first step's pictures are far below.
        state = {"weights": begin, "moments": training.adam_begin(begin), "spent": 0.0,
                 "next": 1 << 40, "steps": 0, "begin": digest}
    clock = training.Clock(minutes, state["spent"], _RATE)
    weights, moments, steps = state["weights"], state["moments"], state["steps"]
    if clock.is_over():
        return weights
    step, told, saved = make_step(language), [], clock.spent()
    rng, pool = random.Random(steps), training.Pool(state["next"])
    while True:
        shown, pictures = pool.batch(rng, BATCH)
        asked = [scenes.ask(scene, rng, BRANCHES) for scene in shown]
        batch = language.batch(asked, encoder.N_ROWS, LENGTH, MOST_ANSWERS)
        weights, moments, loss, right = step(weights, moments, language.weights, language.cache,
                                             pictures, batch, clock.rate_now())
        steps += 1
        told.append((float(loss), float(right)))
        over = clock.is_over()
        if over or clock.spent() - saved > 60:
            saved = clock.spent()
            training.save(path, {"weights": weights, "moments": moments, "spent": saved,
                                 "next": pool.next, "steps": steps, "begin": digest})
            loss, right = np.mean(told, 0)
            told = []
            log(f"speech: {saved / 60:.1f} minutes, step {steps}, loss {loss:.3f}, "
                f"{right:.3f} of the answers' tokens")
        if over:
            return jax.tree.map(np.asarray, weights)
