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
    if clock.is_over():
        return state["weights"]
    learn, rng = make_step(language), random.Random(state["steps"])
    pool = training.Pool(state["next"])

    def step():
        shown, pictures = pool.batch(rng, BATCH)
        asked = [scenes.ask(scene, rng, BRANCHES) for scene in shown]
        batch = language.batch(asked, encoder.N_ROWS, LENGTH, MOST_ANSWERS)
        state["weights"], state["moments"], loss, right = learn(
            state["weights"], state["moments"], language.weights, language.cache, pictures, batch,
            clock.rate_now())
        state["steps"] += 1
        return float(loss), float(right)

    def tell(minutes, means):
        log(f"speech: {minutes:.1f} minutes, step {state['steps']}, loss {means[0]:.3f}, "
            f"{means[1]:.3f} of the answers' tokens")

    training.run(
        clock, step,
        lambda spent: training.save(path, {**state, "spent": spent, "next": pool.next}), tell)
    return jax.tree.map(np.asarray, state["weights"])
