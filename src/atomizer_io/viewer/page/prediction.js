// The predicted map: fetched for the switches, coloured here, compared with the map before by a divider.

import { arrays, latest } from "./api.js";
import { chip, el, percent } from "./dom.js";

const NONE = 255;
const RAMP = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const DIVIDER = [{ type: "line", paint: { "line-color": "#ffffff", "line-width": 3 } }];
const DIFFERS = [230, 0, 122];

export class Prediction {
  constructor(page) {
    this.page = page;
    this.classes = page.scene.classes;
    this.hidden = new Set();
    this.before = null;
    this.now = null;
    this.marks = null; // pixels to mark: where a cheaper map differs, or what was decoded
    this.certainty = false;
    const { width, height } = page.scene.grid;
    this.canvas = el("canvas", { width, height });
    this.swipe = document.getElementById("swipe");
    this.divider = this.swipe.querySelector("input");
    this.divider.addEventListener("input", () => this.draw());
    document.getElementById("unswipe").addEventListener("click", () => this.compare(null));
    this.update = latest(async () => {
      const facts = await arrays("map", { off: page.offList() }, "encoding and decoding …");
      const before = this.now;
      this.set(facts, page.scene.classes);
      this.compare(before);
      page.changed?.(before === null ? null : this.changedShare(before, this.now));
    });
  }

  set(facts, classes) {
    this.now = { label: facts.label, lead: facts.lead, value: facts.value, classes };
    this.classes = classes;
    this.marks = null;
    if (facts.value) this.range = stretch(facts.value);
    this.draw();
    this.legend();
  }

  // Put another map beside the present one, or none.
  compare(before) {
    this.before = before;
    this.swipe.hidden = before === null;
    this.draw();
  }

  changedShare(before, now) {
    let [seen, changed] = [0, 0];
    const [first, second] = [before.label ?? before.value, now.label ?? now.value];
    const least = now.value ? 0.05 * (this.range[1] - this.range[0]) : 0;
    for (let i = 0; i < first.length; i++) {
      if (now.label ? second[i] === NONE : Number.isNaN(second[i])) continue;
      seen++;
      if (now.label ? nameAt(before, i) !== nameAt(now, i) : !(Math.abs(first[i] - second[i]) <= least)) changed++;
    }
    return changed / Math.max(1, seen);
  }

  draw() {
    if (!this.now) return;
    const { width, height } = this.canvas;
    const image = new ImageData(width, height);
    const split = this.before ? Math.round((this.divider.value / 1000) * width) : 0;
    for (let i = 0; i < width * height; i++) {
      const column = i % width;
      const side = column < split ? this.before : this.now;
      const colour = this.split(side, i);
      if (this.marks?.[i] && column >= split) image.data.set([...DIFFERS, 255], 4 * i);
      else if (colour) image.data.set(colour, 4 * i);
    }
    this.canvas.getContext("2d").putImageData(image, 0, 0);
    this.page.map.show("prediction", this.canvas);
    const [a, west, e, north] = this.page.scene.grid.transform;
    const points = [north, north + e * height].map((y) => [west + a * split, y]);
    this.page.map.shapes("divider", split ? [{ type: "LineString", points }] : [], DIVIDER);
  }

  split(side, i) {
    if (side.value) return Number.isNaN(side.value[i]) ? null : [...ramp((side.value[i] - this.range[0]) / (this.range[1] - this.range[0])), 255];
    const own = side.classes[side.label[i]];
    if (!own || this.hidden.has(own.name)) return null;
    return [...own.colour, this.certainty ? 40 + 0.84 * side.lead[i] : 255];
  }

  legend() {
    const box = document.getElementById("legend");
    if (this.now.value) {
      const [name, unit] = this.page.scene.target;
      const stops = RAMP.map((colour) => `rgb(${colour})`).join(", ");
      const bar = el("i", { className: "ramp", style: { background: `linear-gradient(90deg, ${stops})` } });
      box.replaceChildren(`${name}${unit ? ` (${unit})` : ""} `, this.range[0].toPrecision(3), bar, this.range[1].toPrecision(3));
      return;
    }
    const counts = new Map();
    for (const number of this.now.label) counts.set(number, (counts.get(number) ?? 0) + 1);
    const total = this.now.label.length - (counts.get(NONE) ?? 0);
    box.replaceChildren(
      ...this.classes.map(({ name, colour }, number) => {
        const hide = () => {
          if (!this.hidden.delete(name)) this.hidden.add(name);
          this.draw();
          this.legend();
        };
        const share = percent((counts.get(number) ?? 0) / Math.max(1, total));
        const values = { type: "button", onclick: hide, "aria-pressed": !this.hidden.has(name), title: "Show or hide" };
        return el("button", values, chip(colour), name, el("small", {}, share));
      }),
    );
  }
}

const nameAt = (side, i) => side.classes[side.label[i]]?.name;

function stretch(values) {
  const known = values.filter((value) => !Number.isNaN(value)).sort();
  const at = (share) => known[Math.min(known.length - 1, Math.floor(share * known.length))] ?? 0;
  const [low, high] = [at(0.02), at(0.98)];
  return [low, high > low ? high : low + 1];
}

export function ramp(share) {
  const at = Math.min(0.9999, Math.max(0, share)) * (RAMP.length - 1);
  const first = Math.floor(at);
  return RAMP[first].map((low, i) => Math.round(low + (RAMP[first + 1][i] - low) * (at - first)));
}
