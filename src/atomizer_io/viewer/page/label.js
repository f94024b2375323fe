// Labels: points of a class, from which the last layer is refitted; and what becomes of them.

import { arrays, guarded, latest, request } from "./api.js";
import { chip, el, field, percent, rgb, seconds } from "./dom.js";

const COLOURS = [[230, 0, 122], [0, 165, 181], [245, 183, 0], [123, 63, 160], [255, 127, 14], [33, 102, 192]];
const CIRCLES = [{
  type: "circle",
  paint: {
    "circle-radius": ["get", "size"],
    "circle-color": ["get", "colour"],
    "circle-opacity": ["get", "fill"],
    "circle-stroke-width": 2,
    "circle-stroke-color": "#ffffff",
  },
}];

export function labelPanel(page) {
  const { scene, map } = page;
  const labels = { classes: [], points: [] };
  const saved = scene.labels;
  for (const name of [...scene.classes.map((own) => own.name), ...(saved?.classes ?? [])]) if (!labels.classes.includes(name)) labels.classes.push(name);
  labels.points = (saved?.points ?? []).map(([x, y, number]) => [x, y, labels.classes.indexOf(saved.classes[number])]);
  let [active, next, erasing] = [0, [], false];
  const colours = new Map(scene.classes.map(({ name, colour }) => [name, colour]));
  const colourOf = (name) => colours.get(name) ?? COLOURS[labels.classes.indexOf(name) % COLOURS.length];
  const list = el("div", { className: "classes", role: "radiogroup", "aria-label": "Class of new labels" });
  const status = el("p", { className: "figure", "aria-live": "polite" }, "Click the map to label it; the map follows from two classes on.");
  const outcome = el("p", { className: "hint", "aria-live": "polite" });

  const draw = () => {
    const shapes = labels.points.map(([x, y, number]) => ({ type: "Point", points: [[x, y]], size: 6, fill: 1, colour: rgbHex(colourOf(labels.classes[number])) }));
    const hints = next.map((point) => ({ type: "Point", points: [point], size: 9, fill: 0, colour: "#000000" }));
    map.shapes("labels", [...hints, ...shapes], CIRCLES);
    list.replaceChildren(...labels.classes.map((name, number) => {
      const own = labels.points.filter((point) => point[2] === number).length;
      const radio = el("input", { type: "radio", name: "class", checked: number === active, onchange: () => { active = number; erasing = false; draw(); } });
      return el("label", {}, radio, chip(colourOf(name)), el("span", {}, name), el("small", {}, String(own)));
    }));
    erase.setAttribute("aria-pressed", erasing);
  };
  const refit = latest(async () => {
    const used = new Set(labels.points.map((point) => point[2]));
    if (used.size < 2) return;
    const facts = await arrays("fit", { labels, off: page.offList() }, "refitting the last layer …");
    facts.classes.forEach(({ name, colour }) => colours.set(name, colour));
    page.prediction.compare(null);
    page.prediction.set(facts, facts.classes);
    next = facts.next;
    const score = facts.accuracy === null ? facts.why : `${percent(facts.accuracy)} of held-out labels right, ${percent(facts.mean_recall)} as a mean over classes (cross-validated)`;
    status.replaceChildren(el("b", {}, `${labels.points.length} labels`), `: ${score}. Refitted in ${seconds(facts.refit_seconds)}. Rings show where to label next.`);
    draw();
  });
  const changed = () => { draw(); refit(); };
  const act = (point) => {
    if (erasing) {
      const distance = ([x, y]) => Math.hypot(x - point[0], y - point[1]);
      const nearest = labels.points.reduce((best, own) => (best && distance(best) <= distance(own) ? best : own), null);
      labels.points = labels.points.filter((own) => own !== nearest);
    } else if (labels.classes.length) labels.points.push([...point, active]);
    else { name.focus(); return true; }
    changed();
    return true;
  };
  const name = el("input", { type: "text", maxLength: 200, placeholder: "new class", "aria-label": "Name of a new class" });
  const add = el("form", { className: "row", onsubmit: (event) => {
    event.preventDefault();
    const text = name.value.trim();
    if (!text) return;
    if (!labels.classes.includes(text)) labels.classes.push(text);
    active = labels.classes.indexOf(text);
    erasing = false;
    name.value = "";
    draw();
  } }, name, el("button", {}, "Add"));
  const erase = el("button", { type: "button", onclick: () => { erasing = !erasing; draw(); } }, "Erase");
  const undo = el("button", { type: "button", onclick: () => { labels.points.pop(); changed(); } }, "Undo");
  const file = el("input", { type: "file", accept: ".gpkg,.geojson,.json,.fgb,.csv,.parquet", hidden: true, onchange: () => guarded(load) });
  async function load() {
    const bytes = new Uint8Array(await file.files[0].arrayBuffer());
    const content = btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ""));
    const more = await request("import", { name: file.files[0].name, content }, "reading labels …");
    for (const own of more.classes) if (!labels.classes.includes(own)) labels.classes.push(own);
    labels.points.push(...more.points.map(([x, y, number]) => [x, y, labels.classes.indexOf(more.classes[number])]));
    file.value = "";
    changed();
  }
  const download = async () => {
    const url = URL.createObjectURL(new Blob([await request("export", { labels })]));
    el("a", { href: url, download: "labels.gpkg" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10_000);
  };
  const save = async () => {
    const { folder, files } = await request("save", { labels, off: page.offList() }, "writing …");
    outcome.replaceChildren(`Saved in ${folder}: ${files.join(", ")}`);
  };
  const minutes = el("input", { type: "number", min: 1, value: 5, step: 1 });
  const bar = el("progress", { max: 1, value: 0, hidden: true });
  const lines = el("pre", { hidden: true });
  const stop = el("button", { type: "button", hidden: true, onclick: () => guarded(async () => report(await request("stop"))) }, "Stop");
  const report = ({ state, share, lines: text, folder }) => {
    const running = state === "running";
    [bar.hidden, bar.value, stop.hidden, lines.hidden] = [!running, share, !running, !text.length];
    lines.replaceChildren(text.join("\n"));
    if (running) setTimeout(() => guarded(async () => report(await request("progress"))), 1000);
    else if (state !== "none") outcome.replaceChildren(state === "done" ? `Trained: the map and its report are in ${folder}` : `The training ended early; see ${folder}`);
  };
  const train = async () => report(await request("train", { labels, minutes: Number(minutes.value) }));
  const button = (text, work) => el("button", { type: "button", onclick: () => guarded(work) }, text);
  const content = [
    status, list, add,
    el("p", { className: "buttons" }, erase, undo, button("Import …", () => file.click()), button("Export", download), file),
    el("hr"),
    el("p", { className: "buttons" }, el("button", { type: "button", className: "main", onclick: () => guarded(save) }, "Save model, labels and map")),
    el("fieldset", {}, el("legend", {}, "Train properly"), field("Minutes", minutes, "atomizer map in the background, with held-out accuracy"),
      el("p", { className: "buttons" }, button("Train", train), stop), bar, lines),
    outcome,
  ];
  return { content, act, opened: () => { draw(); if (labels.points.length && !next.length) refit(); }, closed: () => map.shapes("labels", [], CIRCLES) };
}

const rgbHex = (colour) => `#${colour.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
