"""What the demo leaves for the eye: one page that needs no other file."""

from __future__ import annotations

import html
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.acquisition import Acquisition
from atomizer_io.figures.class_colours import WRONG, class_colours
from atomizer_io.machine import machine
from atomizer_io.texts import write_text
from atomizer_lab.demo.findings import Findings
from atomizer_lab.demo.lessons import SCENES, UNSEEN, UNSEEN_VILLAGES
from atomizer_lab.demo.rivals import UNSEEN_SENSOR, VIEWS
from atomizer_lab.pages import images
from atomizer_lab.pages.parts import bar, facts, gallery, legend, page
from atomizer_lab.pages.tables import css_colour

CLASSES = np.array(class_colours(("dry", "water")))  # as in the map that is predicted
DRY, WATER = (css_colour((red, green, blue)) for red, green, blue in CLASSES.tolist())
LOW = 0.3  # left end of the scale of scores
MEANING = {
    "all": "Sentinel-1 and Sentinel-2",
    "s2-only": "ten bands of light",
    "s1-only": "two polarisations of radar",
    "rgb-only": "red, green, blue",
    "no-swir": "without the short-wave infrared",
    "no-red-edge": "without the red edge",
    UNSEEN_SENSOR: "other wavelengths and widths, pixels of 15 m",
}
COLOURS = {"Atomizer-IO": "ours", "UNet": "unet", "regression": "pixels"}


def write_report(path: Path, found: Findings, seconds: float) -> Path:
    """Write the page."""
    parts = [head(found, seconds), comparison(found), scene(found), cloud(found), read_out(found), attention(found)]
    text = page("Atomizer-IO: one model, any sensor", "".join(parts) + foot(found))
    write_text(path, text)
    return path


def head(found: Findings, seconds: float) -> str:
    """Say what this is and what came out, in a sentence and five numbers."""
    means, trained = found.means(), found.trained
    numbers = {
        "mIoU with all channels": f"{found.scores['all']:.3f}",
        "mean of six channel sets": f"{means['Atomizer-IO']:.3f}",
        "on a sensor it has never seen": f"{found.scores[UNSEEN_SENSOR]:.3f}",
        f"to train it ({trained.steps:,} steps on a CPU)": f"{trained.seconds:.0f} s",
        "parameters": f"{trained.parameters / 1e6:.2f} M",
    }
    return f"""<header><span class="tag">Atomizer-IO demo</span>
<h1>One model, any sensor</h1>
<p class="lead">A network that reads observations instead of images was trained once, on {SCENES} made-up floods, and
then asked about floods it has never seen: with all channels, with most of them gone, and with a sensor that did not
exist before.</p>
{facts(numbers)}</header>"""


def comparison(found: Findings) -> str:
    """Compare the models under each channel configuration."""
    body = "".join(row(name, MEANING[name], scores) for name, scores in found.rows().items() if name != UNSEEN_SENSOR)
    body += row("mean of the six", "", dict(found.means()), "sum")
    body += row(UNSEEN_SENSOR, MEANING[UNSEEN_SENSOR], found.rows()[UNSEEN_SENSOR])
    heads = "".join(f"<th>{name}</th>" for name in COLOURS)
    names = {
        "Atomizer-IO, trained once": "ours",
        f"small UNet, trained once ({found.beside.unet.steps:,} steps), absent channels zero": "unet",
        "logistic regression of single pixels, fitted anew for each row": "pixels",
    }
    keys = "".join(f'<li><i class="{style}"></i>{name}</li>' for name, style in names.items())
    ahead = sum(
        (row["Atomizer-IO"] or 0) > (row["regression"] or 0) for name, row in found.rows().items() if name in MEANING
    )
    return f"""<section><span class="tag">Channels</span>
<h2>The same weights for every set of channels</h2>
<p>Mean IoU on {UNSEEN} unseen scenes: one trained model is ahead of a regression that was refitted for the row in
{ahead} of {len(found.rows())} rows; a UNet has no input for a sensor that it does not know.</p>
<ul class="keys">{keys}</ul>
<div class="card scroll"><table><thead><tr><th>channels</th>{heads}<th class="track"></th></tr></thead>
<tbody>{body}</tbody></table></div></section>"""


def row(name: str, meaning: str, scores: dict[str, float | None], style: str = "") -> str:
    """Return one row of the comparison: scores as numbers, and as dots on a scale."""
    known = {model: value for model, value in scores.items() if value is not None}
    best = max(known.values(), default=0.0)
    cells = "".join(cell(value, value == best) for value in scores.values())
    at = {model: 100 * (max(value, LOW) - LOW) / (1 - LOW) for model, value in known.items()}
    left, right = min(at.values()), max(at.values())
    dots = f'<b style="left:{left:.1f}%;width:{right - left:.1f}%"></b>'
    dots += "".join(f'<i class="{COLOURS[model]}" style="left:{place:.1f}%"></i>' for model, place in at.items())
    small = f"<small>{html.escape(meaning)}</small>" if meaning else ""
    opening = f'<tr class="{style}">' if style else "<tr>"
    return f'{opening}<td>{html.escape(name)}{small}</td>{cells}<td class="track"><div>{dots}</div></td></tr>'


def cell(value: float | None, best: bool) -> str:
    """Return a cell with a score, or with a dash."""
    text = "–" if value is None else f"{value:.3f}"
    return f'<td class="best">{text}</td>' if best else f"<td>{text}</td>"


def scene(found: Findings) -> str:
    """Show one scene: what was seen, what is true, and what each model made of it."""
    shown = found.scene
    radar, sharp, coarse = shown.sample.atoms.acquisitions
    inputs = [
        (seen(sharp), "Sentinel-2, 10 m", "true colour; a cloud is absent"),
        (seen(coarse), "Sentinel-2, 20 m", "infrared"),
        (seen(radar), "Sentinel-1", "VV; wind makes water bright"),
        (seen(shown.stranger.atoms.acquisitions[0]), "unseen sensor, 15 m", "infrared"),
        (class_map(shown.truth), "truth", ""),
    ]
    rivals = [
        (class_map(labels, shown.truth), name, f"all channels, {right(labels, shown.truth)}")
        for name, labels in shown.rivals.items()
    ]
    views = [(class_map(labels, shown.truth), name, right(labels, shown.truth)) for name, labels in shown.maps.items()]
    return f"""<section><span class="tag">Context</span>
<h2>Where one pixel cannot tell, its neighbours can</h2>
<p>Wind makes water bright in radar and lets it glitter in light, crowns stand out of it, and shadows, burnt fields and
puddles are dark without being flooded: single pixels mislead the regression, and looking around corrects that.</p>
{legend({"water": WATER, "dry": DRY, "wrong": WRONG, "absent": images.ABSENT})}
{gallery(inputs)}
<p>The two rivals with all channels:</p>
{gallery(rivals)}
<p>One Atomizer-IO, seven ways to look at the same place:</p>
{gallery(views)}</section>"""


def seen(acquisition: Acquisition) -> str:
    """Return what a sensor saw as an address of a picture."""
    picture = images.seen(acquisition)
    assert picture is not None
    return images.source(picture)


def class_map(labels: Tensor, truth: Tensor | None = None) -> str:
    """Return a map of dry and water (H, W), pink where it differs from ``truth``, as an address of a picture."""
    return images.source(images.class_map(labels, CLASSES, truth))


def right(labels: Tensor, truth: Tensor) -> str:
    """Return the share of pixels that are right, in words."""
    share = float((labels == truth).float().mean())
    return f"{100 * share:.1f} % right"


def cloud(found: Findings) -> str:
    """Show points and an image read together."""
    beside, village = found.beside, found.village
    rows = "".join(
        f"<tr><td>{view}</td><td>{beside.village_scores[view]:.3f}</td>"
        f"<td>{beside.village_pixel_scores[view]:.3f}</td></tr>"
        for view in VIEWS
    )
    picture = images.source(images.point_cloud(village.sample, village.info, village.answers))
    return f"""<section><span class="tag">Points and pixels</span>
<h2>A point cloud and an aerial image, neither turned into the other</h2>
<p>A second small model ({beside.village.steps:,} steps) names every laser return of a village on a hillside: where it
has points and image it uses both, and it still answers when one of them is missing (mean IoU on {UNSEEN_VILLAGES}
unseen villages).</p>
<div class="card scroll"><table><thead><tr><th>given</th><th>Atomizer-IO</th>
<th>regression of single points, refitted</th></tr></thead><tbody>{rows}</tbody></table></div>
<figure class="plate"><img alt="A point cloud by height, class, prediction and error" src="{picture}"></figure>
</section>"""


def read_out(found: Findings) -> str:
    """Show the map read out everywhere and adaptively."""
    whole, quick = found.scene.whole, found.scene.quick
    same, share = float((whole.labels == quick.labels).float().mean()), 100 * quick.decoded / whole.decoded
    pictures = [
        (class_map(whole.labels), "everywhere", f"{whole.decoded:,} positions asked"),
        (class_map(quick.labels), "quadtree", f"{quick.decoded:,} positions asked"),
        (images.source(images.decoded_map(quick.queried)), "where it asked", "dark: the model was called"),
    ]
    return f"""<section><span class="tag">Read-out</span>
<h2>Ask where it matters</h2>
<p>The scene is encoded once and can then be asked anywhere: a quadtree asks at {share:.0f} % of the pixels, those where
the answer changes, and agrees with asking everywhere at {100 * same:.1f} % of them.</p>
{legend({"water": WATER, "dry": DRY, "asked": images.DECODED})}
{gallery(pictures)}</section>"""


def attention(found: Findings) -> str:
    """Show how much attention each channel received, at the position itself and around it, and where radar got it."""
    shown = found.scene
    shares = shown.attention.by_channel()
    most = max(float(part.mean()) for pair in shares.values() for part in pair) or 1.0
    rows = "".join(
        f"<tr><td>{html.escape(name)}</td>{bar(float(here.mean()), most, 'ours')}"
        f"{bar(float(around.mean()), most, 'pixels')}</tr>"
        for name, (here, around) in shares.items()
    )
    of_radar = torch.stack([here for name, (here, _) in shares.items() if name.startswith("sentinel1")]).sum(dim=0)
    radar, sharp, _ = shown.sample.atoms.acquisitions
    hidden = ~sharp.occupied()
    below = f", and {100 * float(of_radar[hidden].mean()):.0f} % below the cloud" if bool(hidden.any()) else ""
    pictures = [
        (
            images.source(images.share_map(of_radar.reshape(shown.truth.shape))),
            "attention to radar",
            "bright: more of it",
        ),
        (seen(sharp), "Sentinel-2, 10 m", "the cloud is absent"),
        (seen(radar), "Sentinel-1", "VV"),
    ]
    return f"""<section><span class="tag">Attention</span>
<h2>What it looked at</h2>
<p>The share of attention that each channel received, at the position that is asked and through the latents around it:
at the position the radar receives {100 * float(of_radar[~hidden].mean()):.0f} % where there is light{below}.</p>
<div class="card scroll"><table class="bars"><thead><tr><th>channel</th><th>here</th><th>around</th></tr></thead>
<tbody>{rows}</tbody></table></div>
{gallery(pictures)}</section>"""


def foot(found: Findings) -> str:
    """Say how to repeat it and what it was run on."""
    demo, where = found.demo, ", ".join(f"{key} {value}" for key, value in machine().items())
    return f"""<footer><p>All scenes are made up; the numbers say what a capability is worth, nothing about real data.
The scene above was chosen by its share of water and clouds, not by any answer. Three models were trained on this
machine: this one in {found.trained.seconds:.0f} s, the UNet in {found.beside.unet.seconds:.0f} s, that of the village
in {found.beside.village.seconds:.0f} s.</p>
<p><code>atomizer demo --steps {demo.steps} --seed {demo.seed}</code></p><p>{html.escape(where)}</p></footer>"""
