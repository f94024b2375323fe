"""Where training begins: with what a regression of single places knows, instead of with nothing.

Torch's usual weights suit inputs of equal size. Those of a token are not: the Fourier features of its value are ten
times as large as those by which broad bands differ, and a hundred times as those of narrow ones. So at first all bands
look the same, and a small network spends hundreds of steps on telling them apart. :func:`settle` fits fresh weights
to some training samples; nothing changes what can be learned.

- A layer that reads tokens gets weights by what a column stands for: waves count less than the number itself, and what
  the kinds that occur differ by counts as much as a value, at queries for more (:func:`begin`, :func:`tell_apart`).
- What is gathered from around begins at zero, and grows as it proves useful.
- What attention pooled differs between places by little, and mostly by how bright they are. The layers that read it
  are set so that all that differs between places comes out with mean 0 and spread 1 (:func:`spread_values`,
  :func:`whiten`). Both are needed: values drawn at random and undone by the layer after them would be so sensitive
  that the first step of training loses everything. At queries a constant is added (:func:`steady`), or the norms that
  follow would make a place that is like most others as large as one that is not.
- The last layer is solved for, and at queries the last two are then trained on what single places show (see
  :mod:`.last_layers`). That takes seconds, as nothing before them runs, and sees places of hundreds of samples, where
  a step of training sees those of four.

Shapes: K kinds, F features, N rows, E and D features before and after a layer, R directions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.attention import CellAttention
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.encodings import SPECTRAL_DIM, fourier_dim, spectral
from atomizer_io.models.atomizer.last_layers import Rows, best_regression, fit, set_last
from atomizer_io.models.atomizer.observations import DeepObservationAttention
from atomizer_io.models.atomizer.processor import TransformerBlock
from atomizer_io.problem import IGNORE

if TYPE_CHECKING:
    from atomizer_io.models.atomizer.atomizer import AtomizerIO
    from atomizer_io.models.atomizer.prepare import PreparedSample

# Spreads of first weights.
NUMBER, WAVE = 1.0, 0.1  # of a number itself, and of the slowest wave of an offset; faster ones count for less
# Of a value that a query sees: with validation data, as the start is then kept, so small that what is pooled is nearly
# linear in it; without them all layers learn at one rate, and bend it sooner if it is larger.
VALUE, FREE_VALUE = 0.3, 1.0
PLAIN, GSD, SPECTRAL, TIME = 0.5, 0.3, 2.0, 0.3
LEARNED = 0.25  # of the vectors of channels without a wavelength: together about as long as a band's
BIAS = 0.5
# Of the largest variance: what is below is not made as large as the rest. Of latents, of kinds, of what queries see.
FLOOR, KIND_FLOOR, SEEN_FLOOR, FREE_FLOOR = 1e-2, 0.03, 3e-3, 1e-3  # the last: without validation data
UNSEEN = 1.0  # of what other bands would differ by, to what the bands that occur differ by
NOTHING = 1e-8  # a direction in which nothing differs
WHITENED = 32  # samples to whiten with
PLACES, MAPS = 300, 200  # places of a sample, and samples, to solve with
SCENES = 1000  # samples of one answer to solve with
OTHERS = 0.25  # of so many: the unseen ones that tell how much to fit
CONSTANT = 2.0  # what is added at queries, in units of the spread of what differs between them

Batch = tuple[Sequence["PreparedSample"], Tensor]  # prepared samples, and all their targets in one row


class Read(NamedTuple):
    """An attention: its value layer, the layer after it, and the floor of the variances of what they read."""

    value: nn.Linear
    out: nn.Linear
    floor: float


def settle(model: AtomizerIO, batches: Iterator[Batch], unseen: Iterable[Batch] = ()) -> None:
    """Fit the fresh weights of ``model`` to as many batches as it takes.

    How strong a regression is held back, and how long the last layers are trained, is told from ``unseen`` batches, or
    where there are none from a quarter of the others.
    """
    taken: list[Batch] = []
    while sum(len(inputs) for inputs, _ in taken) < WHITENED and (batch := next(batches, None)) is not None:
        taken.append(batch)
    if not taken:
        return
    inputs = [each for some, _ in taken for each in some]
    others = list(itertools.islice(unseen, round(OTHERS * samples_to_solve(model))))
    checked = bool(others)
    observation = None if model.decoder is None else model.decoder.observation
    with torch.no_grad():
        model.tokenizer.learned.normal_(std=LEARNED)
        kinds = [torch.cat([model.tokenizer.kind_features(part) for part in each.atoms]) for each in inputs]
        resolution = fourier_dim(model.config.gsd_frequencies)
        bands = slice(resolution, resolution + SPECTRAL_DIM)
        for kinds_KF in kinds:
            kinds_KF[:, :resolution] = 0.0  # or bands of one sensor would be known by it, and others not at all
        for attention, value in ((model.encoder.attention, NUMBER), (observation, VALUE if checked else FREE_VALUE)):
            if isinstance(attention, CellAttention):
                begin(attention.first, token_sizes(model.config, value, offsets=attention.offset_dim > 0))
                tell_apart(attention.first, attention.parts.value, bands, kinds)
        for block in model.processor.blocks:
            assert isinstance(block, TransformerBlock)
            clear(block.attention.out)
            clear(block.feedforward.down)
        if model.decoder is not None:
            clear(model.decoder.latent.out)
            clear(model.decoder.feedforward.down)
        clear(model.encoder.attention.query)  # attention begins even, so that all heads read the same
        if isinstance(observation, DeepObservationAttention):
            clear(observation.logit)
    read = [Read(model.encoder.attention.value, model.encoder.out, FLOOR)]
    if observation is not None:
        read.append(Read(observation.value, observation.out, SEEN_FLOOR if checked else FREE_FLOOR))
    spread_values(read, model.config.cross_heads, lambda: model.answer(inputs))
    whiten(read, lambda: model.answer(inputs))
    decoder = model.decoder
    if decoder is not None and observation is not None:
        steady(observation.out, [decoder.feedforward.norm, model.head.norm])
    rows, other = rows_of(model, itertools.chain(taken, batches)), rows_of(model, others)
    if not other:
        rows, other = rows[: -(len(rows) // 4) or None], rows[len(rows) - len(rows) // 4 :]
    if rows:
        set_last(model.head, best_regression(model.head, rows, other, by_score=checked))
    if decoder is not None and rows and other:
        fit(decoder.feedforward, model.head, rows, other, by_score=checked)


def samples_to_solve(model: AtomizerIO) -> int:
    """Return how many samples the last layers are fitted to at most."""
    return SCENES if model.decoder is None else MAPS


def fourier_sizes(frequencies: int, max_frequency: float) -> Tensor:
    """Return the spread of first weights for the features of a number: the faster a wave, the smaller."""
    nu = torch.linspace(1.0, max_frequency, frequencies)
    return torch.cat([torch.tensor([NUMBER]), (WAVE / nu).repeat_interleave(2)])


def token_sizes(config: AtomizerConfig, value: float, offsets: bool) -> Tensor:
    """Return the spread of first weights for each feature of a token, and of its offset if ``offsets``.

    ``value`` is the spread for the measured value itself.
    """
    field_sizes = fourier_sizes(config.value_frequencies, config.value_max_frequency)
    size = torch.zeros_like(field_sizes)  # waves of a value would drown what matters
    size[0] = value
    parts = [
        size,
        torch.full((fourier_dim(config.gsd_frequencies),), GSD),
        torch.full((SPECTRAL_DIM,), SPECTRAL),
        (TIME / torch.arange(1, config.time_frequencies + 1)).repeat_interleave(2),
        *(field_sizes if field.fourier else torch.full((2,), PLAIN) for field in config.site_fields),
    ]
    if offsets:
        parts += [fourier_sizes(config.offset_frequencies, config.offset_max_frequency)] * config.dimensions
    return torch.cat(parts)


def begin(first: nn.Linear, sizes_F: Tensor) -> None:
    """Draw the weights of a layer that reads tokens, with these spreads."""
    first.weight.normal_().mul_(sizes_F.to(first.weight))
    first.bias.uniform_(-BIAS, BIAS)


def clear(layer: nn.Linear) -> None:
    """Make a layer give zero."""
    layer.weight.zero_()
    if layer.bias is not None:
        layer.bias.zero_()


def any_band() -> Tensor:
    """Return the spectral features (B, 17) of bands of all wavelengths and some widths: what other sensors have."""
    centre_um, width_um = torch.linspace(0.4, 2.4, 201, dtype=torch.float64), torch.tensor([0.02, 0.04, 0.08]).double()
    return spectral(centre_um.repeat_interleave(3), width_um.repeat(201))


def tell_apart(first: nn.Linear, features: int, columns: slice, kinds: Sequence[Tensor]) -> None:
    """Draw weights for what tells the kinds (K, F) of a sample apart, in columns from ``features`` on, of spread 1.

    What differs between samples only, as the day of a single date, begins without weight: it would cover what differs
    between places. So does everything where there is a single kind.
    """
    mean_F = torch.cat(list(kinds)).to("cpu", torch.float64).mean(dim=0)
    apart_KF = torch.cat([(kinds_KF - kinds_KF.mean(dim=0)).to("cpu", torch.float64) for kinds_KF in kinds])
    square_FF = apart_KF.T @ apart_KF / len(apart_KF)
    if bool((square_FF.diagonal()[columns] > NOTHING).any()):
        square_FF[columns, columns] += UNSEEN * torch.cov(any_band().T, correction=0)
    variance_R, axes_FR = torch.linalg.eigh(square_FF)
    apart = variance_R > NOTHING
    if not bool(apart.any()):
        first.weight[:, features : features + len(mean_F)] = 0.0
        return
    variance_R, axes_FR = variance_R[apart], axes_FR[:, apart]
    draws_DR = torch.randn(first.out_features, len(variance_R), dtype=torch.float64)
    weight_DF = draws_DR * (variance_R + KIND_FLOOR * variance_R[-1]).rsqrt() @ axes_FR.T
    spread_D1 = (apart_KF @ weight_DF.T).square().mean(dim=0).sqrt()[:, None]
    weight_DF = weight_DF / spread_D1.clamp(min=NOTHING)
    first.weight[:, features : features + len(mean_F)] = weight_DF.to(first.weight)
    first.bias.uniform_(-BIAS, BIAS).sub_((weight_DF @ mean_F).to(first.bias))


@torch.no_grad()
def given(layers: Sequence[nn.Module], run: Callable[[], object]) -> list[Tensor]:
    """Return the rows (N, E) that each of ``layers`` is given while ``run`` runs."""
    seen: dict[nn.Module, list[Tensor]] = {layer: [] for layer in layers}

    def keep(layer: nn.Module, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        seen[layer].append(inputs[0].reshape(-1, inputs[0].shape[-1]))

    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    widths = [layer.in_features if isinstance(layer, nn.Linear) else 0 for layer in layers]
    return [
        torch.cat(seen[layer]) if seen[layer] else torch.zeros(0, width)
        for layer, width in zip(layers, widths, strict=True)
    ]


def principal(rows_NE: Tensor, count: int, floor: float) -> tuple[Tensor, Tensor] | None:
    """Return the mean (E,) of rows and weights (R, E) for their ``count`` main directions, of spread 1 each.

    Variances below ``floor``, a share of the largest, are raised by no more than its own would be. None where nothing
    differs.
    """
    if not len(rows_NE):
        return None
    x_NE = rows_NE.to("cpu", torch.float64)
    mean_E = x_NE.mean(dim=0)
    variance_E, axes_EE = torch.linalg.eigh((x_NE - mean_E).T @ (x_NE - mean_E) / len(x_NE))
    if variance_E[-1] <= NOTHING:
        return None
    variance_R, axes_RE = variance_E.flip(0)[:count], axes_EE.T.flip(0)[:count]
    return mean_E, axes_RE * (variance_R.clamp(min=0) + floor * variance_R[0]).rsqrt()[:, None]


@torch.no_grad()
def spread_values(read: Sequence[Read], heads: int, run: Callable[[], object]) -> None:
    """Set the value layers of attentions to the main directions in which what they read differs.

    They have no bias, so these are directions in which its mean is zero. Each of the ``heads`` gets other ones. What a
    value layer reads is found from what the layer after it is given, while it passes on some features at a time.
    """
    values, outs = [each.value for each in read], [each.out for each in read]
    parts: list[list[Tensor]] = [[] for _ in values]
    size = values[0].out_features // heads
    for first in range(0, max(value.in_features for value in values), size):
        for value in values:
            value.weight.zero_()
            for place in range(min(size, value.in_features - first)):
                value.weight[place::size, first + place] = 1.0
        for own, rows in zip(parts, given(outs, run), strict=True):
            own.append(rows.unflatten(1, (heads, size)).mean(dim=1))
    for (value, _, floor), own in zip(read, parts, strict=True):
        x_NE = torch.cat(own, dim=1)[:, : value.in_features].to("cpu", torch.float64)
        mean_E = torch.nn.functional.normalize(x_NE.mean(dim=0), dim=0)
        found = principal(x_NE - (x_NE @ mean_E)[:, None] * mean_E, value.out_features, floor)
        nn.init.normal_(value.weight, std=value.in_features**-0.5)
        if found is not None:
            weight_RE = found[1].to(value.weight)
            row_R = torch.arange(len(weight_RE))
            value.weight[(row_R % heads) * size + row_R // heads] = weight_RE


@torch.no_grad()
def whiten(read: Sequence[Read], run: Callable[[], object]) -> None:
    """Set the layers after attentions so that what they give has mean 0 and spread 1 in all directions that matter.

    That is while ``run`` runs. A layer that is given nothing, or always the same, stays as it is.
    """
    for (_, layer, floor), rows_NE in zip(read, given([each.out for each in read], run), strict=True):
        kept = min(layer.in_features, layer.out_features)
        if (found := principal(rows_NE, kept, floor)) is not None:
            mean_E, weight_RE = found
            turn_DR, _ = torch.linalg.qr(torch.randn(layer.out_features, kept, dtype=torch.float64))
            layer.weight.copy_(turn_DR @ weight_RE)
            layer.bias.copy_(-(turn_DR @ weight_RE) @ mean_E)


def steady(layer: nn.Linear, norms: Sequence[nn.LayerNorm]) -> None:
    """Let ``layer`` give a constant besides what differs, and ``norms`` that come after it take it away again."""
    with torch.no_grad():
        constant_D = CONSTANT * (-1.0) ** torch.arange(layer.out_features).to(layer.bias)
        layer.bias.add_(constant_D)
        for norm in norms:
            norm.weight.fill_((1 + CONSTANT**2) ** 0.5)
            norm.bias.copy_(-constant_D)


def rows_of(model: AtomizerIO, batches: Iterable[Batch]) -> list[Rows]:
    """Return what the last layers are given, and what is true, at known places of as many samples as they need."""
    layer = model.head if model.decoder is None else model.decoder.feedforward
    found, samples = [], 0
    for inputs, target_N in batches:
        x_ND = given([layer], lambda inputs=inputs: model.answer(inputs))[0]  # type: ignore[misc]
        known_N = torch.where(target_N.isfinite() if model.problem.regression else target_N != IGNORE)[0]
        known_N = known_N[torch.randperm(len(known_N))[: PLACES * len(inputs)].to(known_N.device)]
        if len(known_N):
            found.append((x_ND[known_N], target_N[known_N]))
        samples += len(inputs)
        if samples >= samples_to_solve(model):
            break
    return found
