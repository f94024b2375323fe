"""Sketch decoding: decode sparsely, regress the rest on what was observed, and decode where that is not sure.

Probes of a region say nothing about what lies between them. What was observed there does: a river one pixel wide shows
in its pixels although no probe hit it. The sketch is a ridge regression, fitted for each scene to the decoder's outputs
at the probes, of a few random functions of the values observed at a position.

Shapes: M positions, F observed values, J functions, C outputs.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.decoding.predictor import Prediction, Predictor, lead
from atomizer_io.errors import ConfigError

FUNCTIONS, COMPONENTS = 128, 48
RIDGE = 0.01
FAR = 5.0  # standard deviations at which observed values are cut off


def sketch(predictor: Predictor, *, spacing: int = 5, margin: float = 0.0, tolerance: float = 0.0) -> Prediction:
    """Decode every ``spacing``-th position of each row and column, sketch the others, and decode where it is not sure.

    It is sure of a class that is at least ``margin`` ahead of the second, and of a regression target if it expects to
    be off by no more than ``tolerance``. Of a list of positions, one in ``spacing``² is decoded first. A ``margin`` of
    infinity is dense decoding.
    """
    if spacing < 1:
        raise ConfigError(f"spacing must be at least 1, got {spacing}")
    probes = probe_numbers(predictor.shape, spacing)
    predictor.query(probes)
    if spacing not in predictor.sketches:  # one for all margins
        predictor.sketches[spacing] = sketched(predictor, probes)
    outputs_MC, sure_M = predictor.sketches[spacing]
    predictor.query((sure_M < (margin if predictor.classes else -tolerance)).nonzero()[:, 0])
    predictor.outputs_MC = torch.where(predictor.queried_M[:, None], predictor.outputs_MC, outputs_MC)
    return predictor.prediction()


def sketched(predictor: Predictor, probes: Tensor) -> tuple[Tensor, Tensor]:
    """Return outputs (M, C) fitted to those at the probes, and how sure (M,) they are.

    That is the lead of the most probable class, or, for a regression target, minus how far off it is expected to be.
    """
    functions = functions_of(predictor.observed_MF, probes)
    outputs_MC, error_M = fitted(functions, probes, predictor.outputs_MC[probes], errors=not predictor.classes)
    if not predictor.classes:
        return outputs_MC, -error_M
    outputs_MC.clamp_(min=1e-6)
    outputs_MC /= outputs_MC.sum(dim=1, keepdim=True)
    return outputs_MC, lead(outputs_MC)


def probe_numbers(shape: tuple[int, ...], spacing: int) -> Tensor:
    """Return the positions that are decoded first: a lattice in a grid, or a random one in ``spacing``² of a list."""
    if len(shape) == 1:
        count = max(1, shape[0] // spacing**2)
        return torch.from_numpy(np.random.default_rng(0).permutation(shape[0])[:count])
    row, column = (torch.arange(min(spacing // 2, length - 1), length, spacing) for length in shape)
    return (row[:, None] * shape[1] + column).flatten()


def functions_of(observed_MF: Tensor, probes: Tensor) -> tuple[Tensor, Tensor]:
    """Return what was observed (M, F), standardised by what the probes saw, and mixtures (M, J) of it cut off at zero.

    An absent value counts as an average one. Of many values only the main components count.
    """
    seen_nF = observed_MF[probes]
    mean_F = seen_nF.nanmean(dim=0).nan_to_num()
    std_F = (seen_nF - mean_F).square().nanmean(dim=0).sqrt().nan_to_num()
    varied_F = std_F > 1e-6
    x_MF = ((observed_MF[:, varied_F] - mean_F[varied_F]) / std_F[varied_F]).nan_to_num_(0.0).clamp_(-FAR, FAR)
    if x_MF.shape[1] > COMPONENTS:
        x_nF = x_MF[probes]
        x_MF = x_MF @ torch.linalg.eigh(x_nF.T @ x_nF).eigenvectors[:, -COMPONENTS:]
    generator = torch.Generator().manual_seed(0)
    weight_FJ = torch.randn(x_MF.shape[1], FUNCTIONS, generator=generator) / max(1, x_MF.shape[1]) ** 0.5
    return x_MF, torch.addmm(torch.randn(FUNCTIONS, generator=generator), x_MF, weight_FJ).relu_()


def fitted(
    functions: tuple[Tensor, Tensor], probes: Tensor, outputs_nC: Tensor, *, errors: bool = False
) -> tuple[Tensor, Tensor]:
    """Return outputs (M, C) by ridge regression and, with ``errors``, how far off (M,) each is likely to be.

    The latter is fitted to the errors at the probes, each computed as if that probe had been left out.
    """
    n = len(probes)
    a_nJ = torch.cat([torch.ones(n, 1), *(part[probes] for part in functions)], dim=1).double()
    size_J = a_nJ.square().mean(dim=0)
    gram_JJ = a_nJ.T @ a_nJ + torch.diag(n * RIDGE * (size_J + 1e-3 * size_J.mean()))
    root_JJ = torch.linalg.cholesky(gram_JJ)
    weight_JC = torch.cholesky_solve(a_nJ.T @ outputs_nC.double(), root_JJ)

    def everywhere(weight_JC: Tensor) -> Tensor:
        bias_C, *weights = weight_JC.float().split([1, *(part.shape[1] for part in functions)])
        x_MF, mixed_MJ = functions
        return torch.addmm(torch.addmm(bias_C, x_MF, weights[0]), mixed_MJ, weights[1])

    if not errors:
        return everywhere(weight_JC), torch.empty(0)
    leverage_n = (a_nJ * torch.cholesky_solve(a_nJ.T, root_JJ).T).sum(dim=1).clamp(max=0.99)
    error_n = (outputs_nC.double() - a_nJ @ weight_JC)[:, 0].abs() / (1 - leverage_n)
    expected_J1 = torch.cholesky_solve(a_nJ.T @ error_n[:, None], root_JJ)
    return everywhere(weight_JC), everywhere(expected_J1)[:, 0].clamp(min=0)


def sketch_flops(atoms: AtomSet, shape: tuple[int, ...], outputs: int, classes: bool, *, spacing: int) -> float:
    """Return the FLOPs of a sketch, without the decoder's; of observed values that never vary, too many."""
    positions, probes = torch.Size(shape).numel(), len(probe_numbers(shape, spacing))
    observed = 2 + sum(len(a.channels) + len(a.site_fields) for a in atoms)
    parts = min(observed, COMPONENTS)
    fitted_C = outputs if classes else outputs + 1  # of a regression target also how far off it is
    columns = 1 + parts + FUNCTIONS
    mixed = positions * parts * FUNCTIONS
    if observed > COMPONENTS:
        mixed += (probes * observed + positions * parts) * observed
    fit = probes * columns * (columns + fitted_C + (0 if classes else outputs))
    return 2.0 * (mixed + fit + positions * (parts + FUNCTIONS) * fitted_C)
