"""Write a model as ONNX or as a torch.export program, and describe it in a STAC item.

One file takes any number of atoms, bands, dates, latents and queries. See docs/how-to/export.md for its inputs.
"""

from __future__ import annotations

import argparse

FORMATS = ("onnx", "pt2")  # as in export/formats.py, which brings torch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer export``."""
    add = parser.add_argument
    add("--model", required=True, metavar="FOLDER", help="a folder written by save_pretrained")
    add("--format", required=True, choices=FORMATS, help="onnx for any runtime, pt2 for torch")
    add("-o", "--output", required=True, metavar="FILE", help="the file to write, replaced if it exists")
    text = "two ONNX files, NAME.encode.onnx and NAME.decode.onnx: a scene is encoded once, queries only decode"
    add("--split", action="store_true", help=text)
    add("--stac", metavar="FILE.json", help="also write a STAC item with the MLM extension")


def run(args: argparse.Namespace) -> int:
    """Export, test the file and report what was written."""
    from atomizer_io.errors import ConfigError
    from atomizer_io.export.formats import write
    from atomizer_io.export.split import write_split
    from atomizer_io.models.atomizer.atomizer import AtomizerIO

    if args.stac is not None:
        import pystac.extensions.mlm  # noqa: F401  before the work, not after it
    model = AtomizerIO.from_pretrained(args.model)
    if args.split and (args.format != "onnx" or args.stac is not None):
        raise ConfigError("--split is for --format onnx, without --stac: leave one of them out")
    files = write_split(model, args.output) if args.split else [write(model, args.output, args.format)]
    for written in files:
        print(
            f"wrote {written.path}: {model.task_spec.task}, {model.num_parameters:,} parameters, "
            f"{written.bytes / 1e6:,.1f} MB; predictions differ from those of the traced network "
            f"by {written.error:.1e} at most"
        )
    if args.stac is not None:
        from atomizer_io.export.stac import write_item
        from atomizer_io.models.storage import seal_at

        write_item(model, files[0], args.stac, seal=seal_at(args.model))
        print(f"wrote {args.stac}: STAC item with the MLM extension")
    return 0
