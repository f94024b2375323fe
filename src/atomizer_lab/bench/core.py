"""The folded core against the paper's formulation: same weights, same input, one process.

Every row is a stage at one size: wall time of the fast path and of the reference, their ratio, throughput, the peak of
extra memory of the fast path, and the share of this machine's matrix-product speed that the folded computation reaches.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.grid import Grid
from atomizer_io.data.sensors import SENTINEL1, SENTINEL2
from atomizer_io.machine import machine
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.flops import InputSize, stages
from atomizer_io.models.atomizer.geometry.cache import GeometryCache
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.atomizer.ops.kernels.build import available
from atomizer_io.models.atomizer.reference import Reference
from atomizer_io.models.registry import create_model
from atomizer_io.texts import write_output
from atomizer_lab.baselines.unet import Trunk
from atomizer_lab.bench.measure import matrix_product_speed, peak_extra_bytes, seconds

Call = Callable[[], object]

SIDES = (128, 256, 512)  # × 15 channels: 0.25, 1 and 3.9 million atoms
SUPERVISED_QUERIES = 100_000
REFERENCE_STEP_UP_TO = 128  # a whole training step of the reference keeps 25 kB per atom
COLUMNS = (
    f"{'stage':<26}{'atoms':>10}{'seconds':>10}{'reference':>11}{'ratio':>8}{'million/s':>11}{'MB':>7}{'share':>7}"
)


@dataclass
class Row:
    """One measurement of a stage; a figure that a stage does not have is None."""

    stage: str
    atoms: int
    seconds: float
    reference_seconds: float | None
    ratio: float | None
    per_second: float | None  # atoms, or queries for the decoder
    peak_extra_mb: float
    speed_share: float | None

    def __str__(self) -> str:
        def cell(value: float | None, width: int, digits: int) -> str:
            return f"{'' if value is None else format(value, f'.{digits}f'):>{width}}"

        rate = None if self.per_second is None else self.per_second / 1e6
        return (
            f"{self.stage:<26}{self.atoms:>10}{cell(self.seconds, 10, 3)}{cell(self.reference_seconds, 11, 2)}"
            f"{cell(self.ratio, 8, 1)}{cell(rate, 11, 3)}{cell(self.peak_extra_mb, 7, 0)}{cell(self.speed_share, 7, 2)}"
        )


def scene(side: int) -> tuple[AtomSet, Tensor]:
    """Two Sentinel-1 and thirteen Sentinel-2 channels of noise at their usual levels; also as a (15, H, W) image."""
    channels = (*SENTINEL1.pick("VV", "VH"), *SENTINEL2)
    noise = torch.randn(len(channels), side, side, generator=torch.Generator().manual_seed(side))
    raw = torch.stack([n * (c.std or 1.0) + (c.mean or 0.0) for n, c in zip(noise, channels, strict=True)])
    radar = AtomSet.from_raster(raw[:2], channels[:2], 10.0, 180)
    return radar + AtomSet.from_raster(raw[2:], channels[2:], 10.0, 183), noise


class CoreBenchmark:
    """Measures the stages at each size; every row is printed, kept and saved as it comes."""

    def __init__(self, output: Path | None, *, repeats: int = 3, reference_up_to: int = 256) -> None:
        torch.manual_seed(0)
        self.output, self.repeats, self.reference_up_to = output, repeats, reference_up_to
        self.model = create_model("atomizer_io_seg", atoms_per_latent=2000).eval()
        self.reference = Reference(self.model, cells_at_once=16, queries_at_once=2048)
        self.speed = matrix_product_speed()
        self.rows: list[Row] = []
        self.result: dict[str, Any] = {
            "benchmark": "core",
            "machine": machine(),
            "compiled_kernels": available(),
            "parameters": self.model.num_parameters,
            "matrix_product_gflops": self.speed / 1e9,
            "rows": [],
        }

    def run(self, sides: tuple[int, ...] = SIDES) -> dict[str, Any]:
        """Measure all stages at all sizes, then the whole model beside a UNet at the largest."""
        about = self.result["machine"]
        print(
            f"{about['processor']}, {about['threads']} threads, matrix product {self.speed / 1e9:.0f} GFLOP/s, ", end=""
        )
        print(f"compiled kernels: {'yes' if available() else 'no'}\n\n{COLUMNS}")
        for side in sides:
            self._stages(side)
        self._whole_model(max(sides))
        return self.result

    def _stages(self, side: int) -> None:
        model, (atoms, _) = self.model, scene(side)
        positions = Grid(side, side, 10.0).positions()
        geometry = model.geometry(atoms)
        located = model.locate(atoms, geometry, positions)
        size = InputSize.of(model, atoms, side * side, geometry)
        flops = {stage.name: stage.flops for stage in stages(model, size)}
        tokens = model.tokenizer([atoms], [geometry])
        compare = side <= self.reference_up_to

        def encoder() -> Tensor:
            h_LD: Tensor = model.encoder(tokens, geometry.cells[0], geometry.anchors_L2)
            return h_LD

        def encoder_there_and_back() -> None:
            h_LD: Tensor = model.encoder(model.tokenizer([atoms], [geometry]), geometry.cells[0], geometry.anchors_L2)
            h_LD.square().sum().backward()
            model.zero_grad(set_to_none=True)

        def cold() -> None:
            model.locate(atoms, model.geometry(atoms), positions)

        with torch.no_grad():
            slow: Call | None = (lambda: self._reference_encoder(atoms, geometry)) if compare else None
            self._add("encode forward", atoms, encoder, slow, flops=flops["encoder"], items=atoms.num_atoms)
        slow = (lambda: self._reference_encoder(atoms, geometry, back=True)) if compare else None
        self._add("encoder forward+backward", atoms, encoder_there_and_back, slow, items=atoms.num_atoms)
        with torch.no_grad():
            latents = model.encode([atoms], geometry=[geometry])
            h_LD = latents.features[0]
            slow = (lambda: self.reference.decode(h_LD, geometry, atoms, positions)) if compare else None
            decode_flops = flops["decoder"] + flops["head"]
            decode = lambda: model.decode(latents, [located])  # noqa: E731
            self._add("dense decode", atoms, decode, slow, flops=decode_flops, items=len(positions))
        slow = None
        if compare and side <= REFERENCE_STEP_UP_TO:
            slow = lambda: self._training_step(self.reference, atoms, positions, geometry)  # noqa: E731
        self._add("training step", atoms, lambda: self._training_step(model, atoms, positions, geometry), slow)
        self._add("geometry, cold", atoms, cold)
        cache = GeometryCache(model.config)
        cache.locate(atoms, positions)
        self._add("geometry, kept", atoms, lambda: (cache.geometry(atoms), cache.locate(atoms, positions)))

    def _reference_encoder(self, atoms: AtomSet, geometry: Geometry, back: bool = False) -> None:
        """The reference's encoder, some cells at a time; going back at once frees what autograd kept."""
        with torch.no_grad():
            f_NF = self.reference.tokens(atoms)
        positions_S2 = torch.cat([a.positions for a in atoms]) - geometry.center_2
        for h_LD in self.reference.encode_cells(f_NF, positions_S2, geometry.cells[0], geometry.anchors_L2):
            if back:
                h_LD.square().sum().backward()
        self.model.zero_grad(set_to_none=True)

    def _training_step(
        self, network: AtomizerIO | Reference, atoms: AtomSet, positions: Tensor, geometry: Geometry
    ) -> None:
        """Encode, decode at no more than 100 000 positions, cross-entropy, gradients of all weights."""
        generator = torch.Generator().manual_seed(0)
        queries = positions[torch.randperm(len(positions), generator=generator)[:SUPERVISED_QUERIES]]
        target = (queries[:, 0] > 0).long()
        logits = network([atoms], [queries], geometry=[geometry])[0]
        cross_entropy(logits, target).backward()
        self.model.zero_grad(set_to_none=True)

    @torch.no_grad()
    def _whole_model(self, side: int) -> None:
        """From atoms to a map, geometry included, beside a plain UNet on the same numbers."""
        atoms, image = scene(side)
        positions = Grid(side, side, 10.0).positions()
        unet = Trunk(len(image), 2).eval()
        whole = self._add("whole model, dense", atoms, lambda: self.model([atoms], [positions]))
        plain = self._add("plain UNet", atoms, lambda: unet(image[None]))
        self.result["unet_parameters"] = sum(p.numel() for p in unet.parameters())
        self.result["times_unet"] = whole.seconds / plain.seconds
        print(f"\nthe whole model takes {self.result['times_unet']:.2f} times as long as the UNet")
        self._save()

    def _add(
        self, stage: str, atoms: AtomSet, call: Call, slow: Call | None = None, *, flops: float = 0.0, items: int = 0
    ) -> Row:
        """Measure a stage; without ``flops`` and ``items`` its row has no share of the speed and no throughput."""
        peak = peak_extra_bytes(call)  # also warms up
        taken = seconds(call, self.repeats)
        reference = None if slow is None else seconds(slow, 1)
        ratio, rate = None if reference is None else reference / taken, items / taken if items else None
        share = flops / taken / self.speed if flops else None
        row = Row(stage, atoms.num_atoms, taken, reference, ratio, rate, peak / 1e6, share)
        print(row, flush=True)
        self.rows.append(row)
        self.result["rows"] = [asdict(row) for row in self.rows]
        self._save()
        return row

    def _save(self) -> None:
        if self.output is not None:
            write_output(self.output, json.dumps(self.result, indent=2) + "\n")


def plot(result: dict[str, Any], path: Path) -> None:
    """Draw time and peak memory against the number of atoms, one line per stage."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    for stage in ("encode forward", "encoder forward+backward", "dense decode", "training step", "geometry, cold"):
        rows = [row for row in result["rows"] if row["stage"] == stage]
        atoms = [row["atoms"] for row in rows]
        (line,) = axes[0].loglog(atoms, [row["seconds"] for row in rows], "o-", label=stage)
        compared = [row for row in rows if row["reference_seconds"] is not None]
        if compared:
            times = [row["reference_seconds"] for row in compared]
            axes[0].loglog([row["atoms"] for row in compared], times, "x--", color=line.get_color())
        axes[1].loglog(atoms, [max(row["peak_extra_mb"], 1) for row in rows], "o-")
    axes[0].set(xlabel="atoms", ylabel="seconds", title="Time (dashed: the paper's formulation)")
    axes[1].set(xlabel="atoms", ylabel="MB", title="Peak extra memory")
    for axis in axes:
        sizes = sorted({row["atoms"] for row in result["rows"]})
        axis.set_xticks(sizes, [f"{size / 1e6:.2g} M" for size in sizes])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=5, fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)
