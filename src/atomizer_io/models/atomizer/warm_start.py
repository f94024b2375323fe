"""Warm start: fresh weights are fitted to what single positions show, before the first step of training.

:func:`fit_warm_start` changes weights only, not what can be learned.

- Layers that read tokens, and those that read what attention pooled, get weights for what differs (see
  :mod:`.first_weights`). Context branches are zero-initialised.
- The last layer is solved for, and at queries the last two are then trained on what single places show (see
  :mod:`.last_layers`). That takes about a minute if the network is small, as nothing before them
  runs, and sees places of hundreds of samples, where a step of training sees those of four.

Shapes: K kinds, F features, N rows, M places, H heads, E and D features before and after a layer.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from atomizer_io.data.sample import unknown
from atomizer_io.models.atomizer.decoder import Decoder
from atomizer_io.models.atomizer.encodings import fourier_dim
from atomizer_io.models.atomizer.first_weights import NUMBER, Kinds, clear, draw_first, spread, steady
from atomizer_io.models.atomizer.last_layers import Rows, beats_a_constant, best_regression, fit, set_last
from atomizer_io.models.atomizer.observations import DeepObservationAttention, Look
from atomizer_io.models.atomizer.processor import TransformerBlock
from atomizer_io.models.base import WarmStart
from atomizer_io.models.watching import Watch, unwatched

if TYPE_CHECKING:
    from atomizer_io.models.atomizer.atomizer import AtomizerIO
    from atomizer_io.models.atomizer.prepare import PreparedSample

# Spread of the first weights for a value that a query sees: with validation data, as the start is then kept, so small
# that what is pooled is nearly linear in it; without them all layers learn at one rate, and bend it sooner if larger.
VALUE, UNCHECKED_VALUE = 0.3, 1.0
LEARNED = 0.25  # of the vectors of channels without a wavelength: together about as long as a band's
# Of the largest variance: what is below is not made as large as the rest. Of latents, and of what queries see.
FLOOR, SEEN_FLOOR, UNCHECKED_FLOOR = 1e-2, 3e-3, 1e-3  # the last: without validation data
WHITENED = 32  # samples to whiten with
# Samples to fit the last layers to, each with one draw of channels and dates; the second: without validation data.
MAPS, UNCHECKED_MAPS, SCENES = 600, 200, 1000
PLACES = 300  # of one map at most, to fit to
AT_ONCE = 1024  # places that are looked at together

Batch = tuple[Sequence["PreparedSample"], Tensor]  # prepared samples, and all their targets in one row


def fit_warm_start(
    model: AtomizerIO, train: Iterable[Batch], val: Iterable[Batch] = (), watch: Watch = unwatched
) -> WarmStart:
    """Fit the fresh weights of ``model`` to as many batches as it takes; without any, they stay as they are.

    The regularisation of the regression and the length of the fit are chosen on all ``val`` batches, or without any on
    a quarter of the others. Where predictions at ``val`` positions are worse than a constant, single positions tell
    nothing about other scenes: the weights are reset and the warm start is not kept.
    """
    batches = iter(train)
    taken = list(until(WHITENED, batches))
    kept = True
    if taken:
        training, fresh = model.training, copy.deepcopy(model.state_dict())
        model.eval()
        try:
            with torch.no_grad():
                kept = _fit(model, taken, batches, val, watch)
        finally:
            model.train(training)
        if not kept:
            model.load_state_dict(fresh)
    # queries that see nothing, and scenes, start with nothing that large steps would lose
    positions = model.decoder is not None and model.decoder.observation is not None
    return WarmStart(kept, small_steps=positions, slow=tuple(weights_at_positions(model)))


def weights_at_positions(model: AtomizerIO) -> Iterator[nn.Parameter]:
    """Yield the weights between what a position shows and the output there, if a layer per atom reads it."""
    if model.decoder is not None and isinstance(model.decoder.observation, DeepObservationAttention):
        yield model.decoder.q_init
        for part in (model.tokenizer, model.decoder.observation, model.decoder.feedforward, model.head):
            yield from part.parameters()


def _fit(model: AtomizerIO, taken: list[Batch], batches: Iterator[Batch], val: Iterable[Batch], watch: Watch) -> bool:
    """Fit to the ``taken`` batches and those that follow; return whether that is worth keeping."""
    inputs = [each for some, _ in taken for each in some]
    model.tokenizer.learned.normal_(std=LEARNED)
    kinds = kinds_of(model, inputs)
    clear_what_gathers(model)
    draw_encoder(model, inputs, kinds)
    decoder, every = model.decoder, itertools.chain(taken, batches)
    if decoder is None:
        found = rows_of_scenes(model, val)
        rows, other = held_back(rows_of_scenes(model, until(SCENES, every)), found)
        if rows:
            set_last(model.head, best_regression(model.head, rows, other, bool(found), watch))
        return True
    asked = places_of(model, val, None)
    maps = until(MAPS if asked else UNCHECKED_MAPS, every)
    places, others = held_back(places_of(model, maps, PLACES), asked)
    return not places or fit_decoder(model, kinds, places, others, bool(asked), watch)


def fit_decoder(
    model: AtomizerIO, kinds: Kinds, places: list[Places], others: list[Places], checked: bool, watch: Watch
) -> bool:
    """Fit what queries make of what they see at ``places``; ``others`` tell how, by their score if ``checked``.

    Return whether that is better than a constant, as far as ``others`` are validation data and can tell.
    """
    decoder = model.decoder
    assert decoder is not None
    if decoder.observation is not None:
        draw_observation(decoder, kinds, places[:WHITENED], checked)
        steady(decoder.observation.out, [decoder.feedforward.norm, model.head.norm])
    rows, other = [[(part.conditioned(decoder), part.target_M) for part in parts] for parts in (places, others)]
    set_last(model.head, best_regression(model.head, rows, other, checked, watch))
    if not other or decoder.observation is None:  # without observations all places look the same
        return True
    fit(decoder.feedforward, model.head, rows, other, checked, watch)
    return not checked or beats_a_constant(decoder.feedforward, model.head, rows, other)


def until(most: int, batches: Iterable[Batch]) -> Iterator[Batch]:
    """Yield batches until they hold so many samples; no other one is asked for."""
    samples = 0
    for batch in batches:
        yield batch
        samples += len(batch[0])
        if samples >= most:
            return


Of = TypeVar("Of")


def held_back(seen: list[Of], unseen: list[Of]) -> tuple[list[Of], list[Of]]:
    """Return what to fit to and what to choose with: of the first, a quarter where there is none of the second."""
    if unseen:
        return seen, unseen
    return seen[: -(len(seen) // 4) or None], seen[len(seen) - len(seen) // 4 :]


def kinds_of(model: AtomizerIO, inputs: Sequence[PreparedSample]) -> Kinds:
    """Return the features (K, F) of the kinds of each sample, as far as first weights go by them."""
    kinds = [torch.cat([model.tokenizer.kind_features(part) for part in each.atoms]) for each in inputs]
    resolution = fourier_dim(model.config.gsd_frequencies)
    for kinds_KF in kinds:
        kinds_KF[:, :resolution] = 0.0  # or bands of one sensor would be known by it, and others not at all
    return kinds


def clear_what_gathers(model: AtomizerIO) -> None:
    """Let what is gathered from around begin at zero, and attention even (of queries: unless they read raw tokens)."""
    for block in model.processor.blocks:
        assert isinstance(block, TransformerBlock)
        clear(block.attention.out)
        clear(block.feedforward.down)
    clear(model.encoder.attention.query)
    if model.decoder is not None:
        clear(model.decoder.latent.out)
        clear(model.decoder.feedforward.down)
        if isinstance(model.decoder.observation, DeepObservationAttention):
            clear(model.decoder.observation.logit)


def draw_encoder(model: AtomizerIO, inputs: Sequence[PreparedSample], kinds: Kinds) -> None:
    """Draw the weights of what reads the atoms of cells, and spread what comes out of it."""
    encoder = model.encoder
    draw_first(encoder.attention, kinds, NUMBER)
    samples, geometries = [each.atoms.to(model.device) for each in inputs], [each.geometry for each in inputs]
    given = given_to(encoder.attention, lambda: model.process(samples, geometries))
    pooled_NHE = torch.cat([encoder.attention.gathered(*call) for call in given])
    spread(encoder.attention.value, encoder.out, pooled_NHE, FLOOR)


def draw_observation(decoder: Decoder, kinds: Kinds, places: Sequence[Places], checked: bool) -> None:
    """Draw the weights of what reads the atoms that queries see, and spread what comes out of it."""
    observation = decoder.observation
    assert observation is not None
    if isinstance(observation, DeepObservationAttention):
        draw_first(observation, kinds, VALUE if checked else UNCHECKED_VALUE)
    pooled_NHE = torch.cat([observation.gathered(decoder.q_init, [part.look]) for part in places])
    spread(observation.value, observation.out, pooled_NHE, SEEN_FLOOR if checked else UNCHECKED_FLOOR)


def given_to(layer: nn.Module, run: Callable[[], object]) -> list[tuple[Any, ...]]:
    """Return what ``layer`` is given each time that it is called while ``run`` runs."""
    found: list[tuple[Any, ...]] = []
    hook = layer.register_forward_pre_hook(lambda _, given: found.append(given))
    try:
        run()
    finally:
        hook.remove()
    return found


@dataclass(frozen=True, slots=True)
class Places:
    """Places of one sample where the truth is known: what is seen there, their heights, and what is true.

    At first nothing else tells answers apart, so they stand for the samples: nothing is encoded.
    """

    seen: Look | None
    heights_M: Tensor | None
    target_M: Tensor

    def __len__(self) -> int:
        return len(self.target_M)

    @property
    def look(self) -> Look:
        """What the places show; there is nothing where the model does not look at observations."""
        assert self.seen is not None
        return self.seen

    def only(self, index_N: Tensor) -> Places:
        """Return some of the places."""
        look = None if self.seen is None else self.seen.only(index_N)
        return Places(look, None if self.heights_M is None else self.heights_M[index_N], self.target_M[index_N])

    def conditioned(self, decoder: Decoder) -> Tensor:
        """Return what the last layers of ``decoder`` are given here (M, D), before latents add anything."""
        rows = torch.arange(len(self)).to(self.target_M.device).split(AT_ONCE)
        return torch.cat([decoder.conditioned([self.only(some_N)]) for some_N in rows])


def places_of(model: AtomizerIO, batches: Iterable[Batch], most: int | None) -> list[Places]:
    """Return known places of the samples of maps, at most so many of each; None: all."""
    found, device = [], model.device
    for inputs, target_N in batches:
        queries = [each.located for each in inputs if each.located is not None]  # as each has, of a map
        for each, located, target_M in zip(inputs, queries, target_N.split([*map(len, queries)]), strict=True):
            known_M = torch.where(~unknown(target_M))[0]
            known_M = known_M[torch.randperm(len(known_M))[:most].to(known_M.device)]
            if not len(known_M):
                continue
            look, heights_M = None, None
            if located.sites_MA is not None:
                (observed,) = model.tokenizer.observe([each.atoms.to(device)])
                look = Look(observed, located.sites_MA.to(device), located.owners)
            found.append(Places(look, heights_M, target_M).only(known_M))
    return found


def rows_of_scenes(model: AtomizerIO, batches: Iterable[Batch]) -> list[Rows]:
    """Return what the last layer is given, and what is true, of known scenes."""
    found = []
    for inputs, target_B in batches:
        x_BD = torch.cat([given for (given,) in given_to(model.head, lambda inputs=inputs: model.predict(inputs))])  # type: ignore[misc]
        known_B = ~unknown(target_B)
        if bool(known_B.any()):
            found.append((x_BD[known_B], target_B[known_B]))
    return found
