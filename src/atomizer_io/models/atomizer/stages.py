"""Builds the stages of the network from its settings: only this module knows which setting belongs where."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.decoder import Decoder, LatentAttention
from atomizer_io.models.atomizer.encoder import Encoder
from atomizer_io.models.atomizer.layers import FeedForward, RotaryAngles
from atomizer_io.models.atomizer.observations import (
    DeepObservationAttention,
    ObservationAttention,
    RawObservationAttention,
)
from atomizer_io.models.atomizer.processor import Processor, TransformerBlock
from atomizer_io.models.atomizer.temporal import TemporalAggregator
from atomizer_io.models.atomizer.tokenizer import Tokenizer


def tokenizer(c: AtomizerConfig, task_spec: TaskSpec) -> Tokenizer:
    """Return the stage that describes atoms by tokens."""
    return Tokenizer(c, c.learned_channels, task_spec)


def encoder(c: AtomizerConfig) -> Encoder:
    """Return the stage that makes a latent of each cell."""
    return Encoder(c, c.width, c.cross_heads, c.cross_head_dim, c.encoder_expansion, c.feedforward_dropout)


def processor(c: AtomizerConfig) -> Processor:
    """Return the stage in which latents talk."""
    angles = None
    if c.rope:
        angles = RotaryAngles(2, c.self_head_dim, c.rope_scale_m, c.rope_min_cycles, c.rope_max_cycles)
    block = partial(
        TransformerBlock,
        c.width,
        c.self_heads,
        c.self_head_dim,
        c.processor_expansion,
        c.attention_dropout,
        c.feedforward_dropout,
    )
    return Processor(c.width, c.depth, c.global_latents, angles, block)


def temporal(c: AtomizerConfig) -> TemporalAggregator:
    """Return the stage that merges the latents of all time steps."""
    scale = (c.temporal_scale_days, c.rope_min_cycles, c.rope_max_cycles)
    return TemporalAggregator(c.width, *scale, c.attention_dropout, c.feedforward_dropout, c.temporal_residual)


def decoder(c: AtomizerConfig) -> Decoder:
    """Return the stage that predicts at positions."""
    sizes = (c.width, c.cross_heads, c.cross_head_dim)
    observation: Callable[[], ObservationAttention] | None = None
    if c.observation_conditioning and c.observation_mlp:
        observation = partial(DeepObservationAttention, c, *sizes, hidden=round(c.width * c.observation_expansion))
    elif c.observation_conditioning:
        observation = partial(RawObservationAttention, c, *sizes)
    feedforward = partial(FeedForward, c.width, c.decoder_expansion, c.feedforward_dropout)
    return Decoder(c.width, observation, partial(LatentAttention, c, *sizes), feedforward)
