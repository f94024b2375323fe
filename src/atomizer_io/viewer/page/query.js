// One position: the classes, which channels counted, the latents that were read, and what was observed there.

import { latest, request } from "./api.js";
import { bars, el } from "./dom.js";

const LAYERS = [
  { type: "fill", filter: ["==", "$type", "Polygon"], paint: { "fill-color": "#ffffff", "fill-opacity": 0.25 } },
  { type: "line", filter: ["==", "$type", "Polygon"], paint: { "line-color": "#111111", "line-width": 1.5 } },
  {
    type: "circle",
    filter: ["==", "$type", "Point"],
    paint: {
      "circle-radius": ["get", "size"],
      "circle-color": ["get", "colour"],
      "circle-stroke-width": 1.5,
      "circle-stroke-color": "#111111",
    },
  },
];

export function queryPanel(page) {
  const box = el("div", {}, el("p", { className: "hint" }, "Click the map, or move it with the arrow keys and press Enter."));
  const at = latest(async ([x, y]) => {
    const result = await request("at", { x, y, off: page.offList() }, "decoding …");
    show(page, box, [x, y], result);
  });
  const closed = () => page.map.shapes("query", [], LAYERS);
  return { content: [box], at, closed };
}

function show(page, box, [x, y], { outputs, attention, latents, observed }) {
  const { scene, map } = page;
  const digits = Math.abs(scene.grid.transform[0]) < 0.01 ? 6 : 2;
  const classes = scene.classes;
  const rows = outputs.map((share, i) => ({ name: classes[i]?.name ?? `output ${i}`, share, colour: classes[i]?.colour }));
  const [target, unit] = scene.target;
  const predicted = classes.length
    ? [el("h2", {}, "Probabilities"), bars(rows.sort((a, b) => b.share - a.share))]
    : [el("h2", {}, target), el("p", { className: "figure" }, el("b", {}, outputs[0].toPrecision(5)), ` ${unit}`)];
  const children = [el("p", { className: "where" }, `${x.toFixed(digits)}, ${y.toFixed(digits)}`), ...predicted];
  if (attention.length) {
    const sensors = new Set(attention.map(({ sensor }) => sensor));
    const name = ({ sensor, band }) => (sensors.size > 1 ? `${sensor} ${band}` : band);
    const each = attention.map((row) => ({ name: name(row), share: row.share })).sort((a, b) => b.share - a.share);
    children.push(el("h2", {}, "Attention by channel"), bars(each), el("small", {}, "here and through the latents, averaged"));
  }
  children.push(el("h2", {}, "Observed here"));
  if (!observed.length) children.push(el("p", { className: "hint" }, "Nothing that is switched on."));
  scene.rasters.forEach((raster, number) => {
    const own = observed.filter((row) => row.raster === number);
    if (!own.length) return;
    const cells = own.map(({ band, value }) => el("span", {}, el("small", {}, band), value === null ? "–" : String(+value.toPrecision(5))));
    children.push(el("h3", {}, raster.date ? `${raster.name} · ${raster.date}` : raster.name), el("div", { className: "values" }, ...cells));
  });
  if (latents) children.push(el("small", {}, `The outline is the cell of the nearest latent; dots are the ${latents.read.length} latents that were read.`));
  box.replaceChildren(...children);
  const points = latents ? latents.read.map((point, i) => ({ type: "Point", points: [point], size: i ? 3.5 : 5, colour: "#ffd400" })) : [];
  const cell = latents ? [{ type: "Polygon", points: latents.cell }] : [];
  map.shapes("query", [...cell, ...points, { type: "Point", points: [[x, y]], size: 6, colour: "#e6007a" }], LAYERS);
}
