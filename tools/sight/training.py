"""Shared by all steps of the training: checkpoints, Adam, a pool of drawn pictures, a clock."""

import multiprocessing
import os
import pickle
import time
from queue import Full

import jax
import jax.numpy as jnp
import numpy as np

import scenes


def save(path, state):
    with open(path + ".part", "wb") as file:
        pickle.dump(jax.tree.map(lambda x: x if isinstance(x, (int, float)) else np.asarray(x),
                                 state), file)
    os.replace(path + ".part", path)


def load(path):
    """What was saved there, or None."""
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        return pickle.load(file)


def adam_begin(weights):
    zeros = jax.tree.map(np.zeros_like, weights)
    return {"first": zeros, "second": jax.tree.map(np.copy, zeros), "step": np.float32(0)}


def adam(weights, grads, moments, rate, decay=0.0):
    """The weights after a step, and the moments. Gradients are cut to a norm of 1."""
    norm = jnp.sqrt(sum(jnp.sum(g * g) for g in jax.tree.leaves(grads)))
    grads = jax.tree.map(lambda g: g / jnp.maximum(1.0, norm), grads)
    step = moments["step"] + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments["first"], grads)
    second = jax.tree.map(lambda m, g: 0.98 * m + 0.02 * g * g, moments["second"], grads)

    def change(w, m, v):
        m, v = m / (1 - 0.9 ** step), v / (1 - 0.98 ** step)
        return w - rate * (m / (jnp.sqrt(v) + 1e-8) + decay * w)

    changed = jax.tree.map(change, weights, first, second)
    return changed, {"first": first, "second": second, "step": step}


class Clock:
    """The rate of learning over minutes of one core's work, from where an earlier run was.

    What others take of the cores does not count."""

    def __init__(self, minutes, spent, rate):
        self.total, self.rate, self.begin = 60 * minutes, rate, time.process_time() - spent

    def spent(self):
        return time.process_time() - self.begin

    def is_over(self):
        return self.spent() >= self.total

    def rate_now(self):
        """Rises for a moment and falls to nothing."""
        share = min(1.0, self.spent() / self.total)
        return self.rate * min(1.0, share / 0.03 + 0.05) * 0.5 * (1 + np.cos(np.pi * share))


def run(clock, step, save, tell, pause=60):
    """Calls step() until the time is over. Now and then, and at the end, save(spent) and
    tell(minutes, means of the steps' results)."""
    saved, told = clock.spent(), []
    while True:
        told.append(step())
        over = clock.is_over()
        if over or clock.spent() - saved > pause:
            saved = clock.spent()
            save(saved)
            tell(saved / 60, np.mean(told, 0))
            told = []
        if over:
            return


_PIECE = 64


def _draw(first, queue):
    artist, parent = scenes.Artist(), multiprocessing.parent_process()
    for number in range(first, 1 << 60, 2 * _PIECE):
        drawn = [artist.draw(number + 2 * i) for i in range(_PIECE)]
        piece = [scene for scene, _ in drawn], np.stack([picture for _, picture in drawn])
        while not _put(queue, piece):
            if not parent.is_alive():
                queue.cancel_join_thread()
                return


def _put(queue, piece):
    try:
        queue.put(piece, timeout=1)
    except Full:
        return False
    return True


class Pool:
    """Pictures of training scenes. A process draws on while those of before are looked at again."""

    def __init__(self, first, most=60_000):
        context = multiprocessing.get_context("spawn")
        self.queue = context.Queue(8)
        self.scenes, self.pictures, self.most = [], [], most
        self.next, self.wanted = first, 0.0
        context.Process(target=_draw, args=(first, self.queue), daemon=True).start()
        while len(self.scenes) < 1024:
            self.take(self.queue.get())

    def take(self, piece):
        drawn, pictures = piece
        self.scenes += drawn
        self.pictures += list(pictures)
        self.next += 2 * _PIECE
        if len(self.scenes) > self.most:
            del self.scenes[:_PIECE], self.pictures[:_PIECE]

    def batch(self, rng, size):
        """Scenes and pictures. Half of them could be new: to draw takes time, too."""
        self.wanted += size / 2 / _PIECE
        while self.wanted >= 1 and not self.queue.empty():
            self.take(self.queue.get())
            self.wanted -= 1
        chosen = [rng.randrange(len(self.scenes)) for _ in range(size)]
        return [self.scenes[i] for i in chosen], np.stack([self.pictures[i] for i in chosen])


def test_pictures(n, first=1):
    artist = scenes.Artist()
    drawn = [artist.draw(first + 2 * i) for i in range(n)]
    return [scene for scene, _ in drawn], np.stack([picture for _, picture in drawn])
