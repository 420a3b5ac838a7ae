"""First step: the encoder learns what each of its rows has to tell, as a sum of VALUES' numbers."""

import random

import jax
import jax.numpy as jnp
import numpy as np

import encoder
import scenes
import training

BATCH = 64
_RATE, _DECAY = 1.5e-3, 0.02
_SHARP = 6.0


def targets_of(batch):
    """For each row of each scene the numbers' sum, and which of them is to be told apart."""
    chosen = np.array([scenes.target(scene) for scene in batch])
    sums = np.zeros((*chosen.shape, scenes.N_NUMBERS), np.float32)
    at = np.nonzero(chosen >= 0)
    sums[(*at, chosen[at])] = 1
    sums[:, range(len(scenes.ROWS)), range(len(scenes.VALUES), scenes.N_NUMBERS)] = 1
    return sums, chosen


def _mask():
    """Values of other rows do not compete."""
    mask = np.full((len(scenes.ROWS), scenes.N_NUMBERS), -1e9, np.float32)
    for row, values in enumerate(scenes.ROWS):
        mask[row, scenes.FIRST[row]:scenes.FIRST[row] + len(values)] = 0
    return mask


def loss_of(weights, pictures, sums, chosen):
    rows = encoder.encode(weights, pictures)
    logs = jax.nn.log_softmax(_SHARP * rows + _mask(), -1)
    told = jnp.take_along_axis(logs, jnp.maximum(chosen, 0)[..., None], -1)[..., 0]
    return (-(told * (chosen >= 0)).sum() / len(pictures)
            + 0.5 * ((rows - sums) ** 2).sum() / len(pictures))


@jax.jit
def _step(weights, moments, pictures, sums, chosen, rate):
    loss, grads = jax.value_and_grad(loss_of)(weights, pictures, sums, chosen)
    return *training.adam(weights, grads, moments, rate, _DECAY), loss


_encode = jax.jit(encoder.encode)


def accuracy(weights, shown, pictures):
    """The share of right values of each row, where there is one."""
    rows = np.concatenate([np.asarray(_encode(weights, pictures[i:i + 64]))
                           for i in range(0, len(pictures), 64)])
    chosen = np.array([scenes.target(scene) for scene in shown])
    right = (rows + _mask()).argmax(-1) == chosen
    result = {}
    kinds = np.array([scene.kind for scene in shown])
    for row, name in enumerate(("thing", "color", "count", "place")):
        for kind in ("shapes", "digit", "word"):
            at = (chosen[:, row] >= 0) & (kinds == kind)
            if at.any() and (name != "count" or kind == "shapes"):
                result[f"{name} of {kind}"] = right[at, row].mean()
    return result


def train(path, minutes, log):
    state = training.load(path)
    if state is None:
        weights = encoder.init(1, scenes.N_NUMBERS)
        state = {"weights": weights, "moments": training.adam_begin(weights), "spent": 0.0,
                 "next": 0, "steps": 0}
    clock = training.Clock(minutes, state["spent"], _RATE)
    if clock.is_over():
        return state["weights"]
    log(f"eye: {encoder.n_parameters(state['weights'])} numbers, {clock.spent() / 60:.1f} minutes so far")
    rng = random.Random(state["steps"])
    pool, shown = training.Pool(state["next"]), training.test_pictures(512)

    def step():
        batch, pictures = pool.batch(rng, BATCH)
        state["weights"], state["moments"], loss = _step(
            state["weights"], state["moments"], pictures, *targets_of(batch), clock.rate_now())
        state["steps"] += 1
        return loss

    def tell(minutes, loss):
        seen = ", ".join(f"{name} {share:.3f}"
                         for name, share in accuracy(state["weights"], *shown).items())
        log(f"eye: {minutes:.1f} minutes, step {state['steps']}, {pool.next // 2} drawn, "
            f"loss {loss:.3f}: {seen}")

    training.run(
        clock, step,
        lambda spent: training.save(path, {**state, "spent": spent, "next": pool.next}), tell)
    return jax.tree.map(np.asarray, state["weights"])
