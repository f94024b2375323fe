"""Data-dependent initialisation of the layers that read measurements; it takes a second and fits nothing.

With torch's initial weights all latents of a scene are nearly one vector: the Fourier features of a value are ten
times as large as those by which broad bands differ, and what attention pooled of a cell differs between cells by far
less than it has in common. Gradients then depend little on the scene, and a small network spends hundreds of steps on
a plateau. So, with some training samples and without their targets, the encoder and the observation layer of the
decoder are initialised in two steps (whitening: centred, unit variance of what differs):

1. :func:`draw_token_layer`: weights of the layer that reads tokens are drawn with a standard deviation for each
   column. The number itself counts more than its Fourier features, and what differs between the channels of a sample
   counts as much as a value does.
2. :func:`whiten_attention`: the value layer and the output layer of the attention are set so that its outputs, over
   the cells or queries of the samples, have mean 0 and the same standard deviation in all directions that matter.

Number and shape of the parameters, and all equations, stay those of the paper. What is pooled differs little between
cells, so whitening multiplies it, and every change of the layers before: an optimizer that moves all weights alike
would scramble the features in each step. Training therefore moves these layers (:data:`SENSITIVE`) by a small part of
the learning rate.

Shapes: K kinds, B bands, F features, N rows, H heads, E and D features before and after a layer, R directions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.config import Encodings
from atomizer_io.models.atomizer.encodings import SPECTRAL_DIM, fourier_dim, spectral
from atomizer_io.models.atomizer.observations import DeepObservationAttention, Look
from atomizer_io.models.atomizer.ops.attention import CellAttention

if TYPE_CHECKING:
    from atomizer_io.data.atoms import AtomSet
    from atomizer_io.models.atomizer.atomizer import AtomizerIO
    from atomizer_io.models.atomizer.geometry.partition import Geometry
    from atomizer_io.models.atomizer.prepare import PreparedSample

# Standard deviations of the weights for each column of a token: a number and its slowest Fourier feature (faster ones
# count for less), a site field that is a plain number, GSD, spectral features, dates; and of what is learned by name.
NUMBER, FOURIER, PLAIN, GSD, SPECTRAL, TIME, LEARNED = 1.0, 0.1, 0.5, 0.3, 2.0, 0.3, 0.25
OBSERVED_NUMBER = 0.3  # of a value that a query sees: what is pooled is then nearly linear in it
BIAS = 0.5
KIND_FLOOR = 0.03  # share of the largest variance of channels: directions below it keep a smaller variance
LATENT_FLOOR, OBSERVED_FLOOR = 1e-2, 3e-3  # the same for what cells and queries pooled
MIN_VARIANCE = 1e-8  # variance of a direction in which nothing differs
QUERIES = 300  # of a sample, at most


SENSITIVE = ("tokenizer", "encoder.h_init", "encoder.attention", "encoder.out", "decoder.observation")


@torch.no_grad()
def initialise(model: AtomizerIO, inputs: Sequence[PreparedSample], stages: Collection[str]) -> None:
    """Initialise the token-reading layers of these stages of ``model`` from prepared training samples."""
    if "tokenizer" in stages:
        new_vectors(model.tokenizer.learned)
    kinds = features_of_kinds(model, inputs)
    samples = [sample.atoms.to(model.device) for sample in inputs]
    if "encoder" in stages:
        initialise_encoder(model, kinds, samples, [sample.geometry for sample in inputs])
    if "decoder" in stages:
        initialise_decoder(model, kinds, samples, inputs)


@torch.no_grad()
def new_vectors(learned: Tensor) -> Tensor:
    """Draw what is learned of channels by name, in place."""
    return learned.normal_(std=LEARNED)


def initialise_encoder(
    model: AtomizerIO, kinds: Sequence[Tensor], samples: list[AtomSet], geometries: list[Geometry]
) -> None:
    """Initialise the layers with which the encoder reads tokens."""
    encoder = model.encoder
    draw_token_layer(encoder.attention, kinds, NUMBER)
    calls: list[tuple[Any, ...]] = []
    hook = encoder.attention.register_forward_pre_hook(lambda _, arguments: calls.append(arguments))
    try:
        model.process(samples, geometries)
    finally:
        hook.remove()
    pooled_NHE = torch.cat([encoder.attention.gathered(*call) for call in calls])
    whiten_attention(encoder.attention.value, encoder.out, pooled_NHE, LATENT_FLOOR)


def initialise_decoder(
    model: AtomizerIO, kinds: Sequence[Tensor], samples: Sequence[AtomSet], inputs: Sequence[PreparedSample]
) -> None:
    """Initialise the layers with which the decoder reads what queries see, where it does."""
    if model.decoder is None or model.decoder.observation is None:
        return
    observation = model.decoder.observation
    if isinstance(observation, DeepObservationAttention):
        draw_token_layer(observation, kinds, OBSERVED_NUMBER)
    looks = [look for sample, atoms in zip(inputs, samples, strict=True) for look in looks_of(model, sample, atoms)]
    if looks:
        pooled_NHE = torch.cat([observation.gathered(model.decoder.q_init, [look]) for look in looks])
        whiten_attention(observation.value, observation.out, pooled_NHE, OBSERVED_FLOOR)


def features_of_kinds(model: AtomizerIO, inputs: Sequence[PreparedSample]) -> list[Tensor]:
    """Return the features (K, F) of the kinds of each sample; GSD is left out, as it would stand for the sensor."""
    kinds = [torch.cat([model.tokenizer.kind_features(part) for part in sample.atoms]) for sample in inputs]
    for features_KF in kinds:
        features_KF[:, : fourier_dim(model.config.gsd_frequencies)] = 0.0
    return kinds


def looks_of(model: AtomizerIO, sample: PreparedSample, atoms: AtomSet) -> list[Look]:
    """Return what some queries of a sample see; empty where it has no queries."""
    located = sample.located
    if located is None or located.sites_MA is None or not len(located):
        return []
    (observations,) = model.tokenizer.observe([atoms])
    sites_MA = located.sites_MA[torch.randperm(len(located))[:QUERIES]]
    return [Look(observations, sites_MA.to(model.device), located.owners)]


def draw_token_layer(attention: CellAttention, kinds: Sequence[Tensor], number_std: float) -> None:
    """Draw the weights of the layer per atom; ``number_std`` is the standard deviation for measured values."""
    encodings, first = attention.encodings, attention.first
    std_F = column_stds(encodings, number_std, offsets=attention.offset_dim > 0)
    first.weight.normal_().mul_(std_F.to(first.weight))
    first.bias.uniform_(-BIAS, BIAS)
    resolution = fourier_dim(encodings.gsd_frequencies)
    draw_kind_columns(first, attention.parts.value, slice(resolution, resolution + SPECTRAL_DIM), kinds)


def number_stds(frequencies: int, max_frequency: float) -> Tensor:
    """Return the standard deviations for a number and its Fourier features: the faster one is, the smaller."""
    nu = torch.linspace(1.0, max_frequency, frequencies)
    return torch.cat([torch.tensor([NUMBER]), (FOURIER / nu).repeat_interleave(2)])


def column_stds(encodings: Encodings, number_std: float, offsets: bool) -> Tensor:
    """Return the standard deviation of weights for each feature of a token, and of its offset if ``offsets``."""
    field_std = number_stds(encodings.value_frequencies, encodings.value_max_frequency)
    value_std = torch.zeros_like(field_std)  # Fourier features of a value would drown what matters
    value_std[0] = number_std
    parts = [
        value_std,
        torch.full((fourier_dim(encodings.gsd_frequencies),), GSD),
        torch.full((SPECTRAL_DIM,), SPECTRAL),
        (TIME / torch.arange(1, encodings.time_frequencies + 1)).repeat_interleave(2),
        *(field_std if field.fourier else torch.full((2,), PLAIN) for field in encodings.site_fields),
    ]
    if offsets:
        parts += [number_stds(encodings.offset_frequencies, encodings.offset_max_frequency)] * 2
    return torch.cat(parts)


def spectra_of_other_sensors() -> Tensor:
    """Return the spectral features (B, 17) of bands of all wavelengths and some widths."""
    centre_um, width_um = torch.linspace(0.4, 2.4, 201, dtype=torch.float64), torch.tensor([0.02, 0.04, 0.08]).double()
    return spectral(centre_um.repeat_interleave(3), width_um.repeat(201))


def draw_kind_columns(first: nn.Linear, begin: int, spectrum: slice, kinds: Sequence[Tensor]) -> None:
    """Draw weights for the differences between kinds (K, F) of a sample, in columns from ``begin`` on, with variance 1.

    What differs between samples only, as the day of a single date, gets no weight: it would cover what differs between
    positions. With a single kind all these columns are zero.
    """
    mean_F = torch.cat(list(kinds)).to("cpu", torch.float64).mean(dim=0)
    apart_KF = torch.cat([(kinds_KF - kinds_KF.mean(dim=0)).to("cpu", torch.float64) for kinds_KF in kinds])
    covariance_FF = apart_KF.T @ apart_KF / len(apart_KF)
    if bool((covariance_FF.diagonal()[spectrum] > MIN_VARIANCE).any()):  # bands: those of other sensors may come, too
        covariance_FF[spectrum, spectrum] += torch.cov(spectra_of_other_sensors().T, correction=0)
    variance_R, axes_FR = torch.linalg.eigh(covariance_FF)
    differs = variance_R > MIN_VARIANCE
    columns = slice(begin, begin + len(mean_F))
    if not bool(differs.any()):
        first.weight[:, columns] = 0.0
        return
    variance_R, axes_FR = variance_R[differs], axes_FR[:, differs]
    normal_DR = torch.randn(first.out_features, len(variance_R), dtype=torch.float64)
    weight_DF = normal_DR * (variance_R + KIND_FLOOR * variance_R[-1]).rsqrt() @ axes_FR.T
    weight_DF /= (apart_KF @ weight_DF.T).square().mean(dim=0).sqrt().clamp(min=MIN_VARIANCE)[:, None]
    first.weight[:, columns] = weight_DF.to(first.weight)
    first.bias.uniform_(-BIAS, BIAS).sub_((weight_DF @ mean_F).to(first.bias))


def whiten_attention(value: nn.Linear, out: nn.Linear, pooled_NHE: Tensor, floor: float) -> None:
    """Set the value layer of an attention, and the layer after it, so that all that differs has variance 1.

    ``pooled_NHE`` is what the value layer reads. It has no bias, so it gets the main directions in which the mean is
    zero, and each head other ones.
    """
    heads, size = pooled_NHE.shape[1], value.out_features // pooled_NHE.shape[1]
    x_NE = pooled_NHE.mean(dim=1).to("cpu", torch.float64)
    mean_E = torch.nn.functional.normalize(x_NE.mean(dim=0), dim=0)
    directions = principal(x_NE - (x_NE @ mean_E)[:, None] * mean_E, value.out_features, floor)
    nn.init.normal_(value.weight, std=value.in_features**-0.5)
    if directions is not None:
        weight_RE = directions[1].to(value.weight)
        row_R = torch.arange(len(weight_RE))
        value.weight[(row_R % heads) * size + row_R // heads] = weight_RE
    attended_NE = torch.einsum("nhe,hde->nhd", pooled_NHE, value.weight.unflatten(0, (heads, size))).flatten(1)
    rank = min(out.in_features, out.out_features)
    if (directions := principal(attended_NE, rank, floor)) is not None:  # or all is the same, and stays as it is
        mean_E, weight_RE = directions
        rotation_DR, _ = torch.linalg.qr(torch.randn(out.out_features, rank, dtype=torch.float64))
        out.weight.copy_(rotation_DR @ weight_RE)
        out.bias.copy_(-(rotation_DR @ weight_RE) @ mean_E)


def principal(rows_NE: Tensor, count: int, floor: float) -> tuple[Tensor, Tensor] | None:
    """Return the mean (E,) of rows and weights (R, E) for their ``count`` main directions, of variance 1 each.

    A direction whose variance is below ``floor``, a share of the largest, is mostly noise, and keeps a smaller one.
    None where nothing differs.
    """
    x_NE = rows_NE.to("cpu", torch.float64)
    if not len(x_NE):
        return None
    mean_E = x_NE.mean(dim=0)
    variance_E, axes_EE = torch.linalg.eigh((x_NE - mean_E).T @ (x_NE - mean_E) / len(x_NE))
    if variance_E[-1] <= MIN_VARIANCE:
        return None
    variance_R, axes_RE = variance_E.flip(0)[:count], axes_EE.T.flip(0)[:count]
    return mean_E, axes_RE * (variance_R.clamp(min=0) + floor * variance_R[0]).rsqrt()[:, None]
