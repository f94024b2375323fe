// A switch for each sensor, band and date: what is off is left out as if it had never been observed.

import { el, percent } from "./dom.js";

export function switchPanel(page) {
  const { rasters } = page.scene;
  const sensors = new Map();
  for (const raster of rasters)
    for (const { sensor, name, um } of raster.bands) {
      if (!sensors.has(sensor)) sensors.set(sensor, new Map());
      sensors.get(sensor).set(name, um);
    }
  const dates = [...new Set(rasters.map((raster) => raster.date))].sort();
  const changed = el("p", { className: "figure" }, "Switch something off: the same model predicts from what is left.");
  page.changed = (share) => {
    if (share === null) return;
    changed.replaceChildren(el("b", {}, percent(share)), " of the map changed with the last switch");
  };
  const boxes = [];
  const refresh = () => boxes.forEach((update) => update());
  const change = (set, keys, on) => {
    for (const key of keys) on ? set.delete(key) : set.add(key);
    refresh();
    page.prediction.update();
  };
  const box = (set, keys, label, title = "") => {
    const input = el("input", { type: "checkbox", onchange: () => change(set, keys, input.checked) });
    boxes.push(() => {
      const off = keys.filter((key) => set.has(key)).length;
      input.checked = off === 0;
      input.indeterminate = off > 0 && off < keys.length;
    });
    return el("label", { className: "check", title }, input, label);
  };
  const content = [changed];
  for (const [sensor, bands] of sensors) {
    const keys = new Map([...bands.keys()].map((name) => [name, JSON.stringify([sensor, name])]));
    const each = [...bands].map(([name, um]) => box(page.off.channels, [keys.get(name)], name, um ? `${um} µm` : "no wavelength"));
    content.push(
      el("fieldset", {}, el("legend", {}, box(page.off.channels, [...keys.values()], sensor)), el("div", { className: "many" }, ...each)),
    );
  }
  if (dates.length > 1) {
    const each = dates.map((date) => box(page.off.dates, [date], date || "no date"));
    content.push(el("fieldset", {}, el("legend", {}, "dates"), el("div", { className: "many" }, ...each)));
  }
  const all = el("button", { type: "button", onclick: () => {
    page.off.channels.clear();
    page.off.dates.clear();
    refresh();
    page.prediction.update();
  } }, "Switch all on");
  refresh();
  return { content: [...content, all] };
}
