// A point cloud: from above on the map, and a cross-section along a line that is dragged; the same switches.

import { arrays, latest, request } from "./api.js";
import { bars, chip, el, field, percent, rgb, select } from "./dom.js";
import { SceneMap } from "./map.js";
import { ramp } from "./prediction.js";
import { switchPanel } from "./switches.js";

const LINE = [
  { type: "line", filter: ["==", "$type", "LineString"], paint: { "line-color": "#ffffff", "line-width": 2.5 } },
  { type: "circle", filter: ["==", "$type", "Point"], paint: { "circle-radius": 6, "circle-color": "#e6007a", "circle-stroke-width": 2, "circle-stroke-color": "#ffffff" } },
];
const WRONG = [230, 0, 122];

export async function pointsPage(scene, tabs) {
  const map = new SceneMap("map", scene.grid);
  const [points] = await Promise.all([arrays("points", {}, "reading points …"), map.ready]);
  const page = { scene, map, off: { channels: new Set(), dates: new Set() } };
  page.offList = () => ({ channels: [...page.off.channels].map((key) => JSON.parse(key)), dates: [] });
  const total = points.x.length;
  const { width, height, pixel_m: [pixel] } = scene.grid;
  const most = points.height.slice().sort()[Math.floor(0.99 * total)] || 1;
  const codes = new Map(scene.codes.map((code, number) => [code, scene.classes[number]]));
  let [by, thickness, now] = ["prediction", 2, null];
  let line = [[0, (height * pixel) / 2], [width * pixel, (height * pixel) / 2]];

  const colour = (i) => {
    if (by === "height") return ramp(points.height[i] / most);
    if (by === "file") return codes.get(points.code[i])?.colour ?? [150, 150, 150];
    const own = scene.classes[now.label[i]].colour;
    if (by === "prediction") return own;
    const known = codes.get(points.code[i]);
    return !known ? [150, 150, 150] : known === scene.classes[now.label[i]] ? [185, 196, 208] : WRONG;
  };

  const canvas = el("canvas", { width, height });
  const order = Uint32Array.from(points.z.keys()).sort((a, b) => points.z[a] - points.z[b]);
  const above = () => {
    const image = new ImageData(width, height);
    const side = Math.max(1, Math.round(Math.sqrt((width * height) / total)));
    for (const i of order) {
      const [column, row] = [Math.floor(points.x[i] / pixel), Math.floor(height - points.y[i] / pixel)];
      const parts = [...colour(i), 255];
      for (let y = row; y < Math.min(height, row + side); y++)
        for (let x = column; x < Math.min(width, column + side); x++) if (y >= 0) image.data.set(parts, 4 * (y * width + x));
    }
    canvas.getContext("2d").putImageData(image, 0, 0);
    map.show("points", canvas);
  };

  const section = el("canvas", { id: "section", width: 680, height: 300, tabIndex: 0 });
  section.setAttribute("aria-label", "Cross-section: arrow keys move its line");
  const drawSection = () => {
    const [[x0, y0], [x1, y1]] = line;
    const length = Math.hypot(x1 - x0, y1 - y0) || 1;
    const [ux, uy] = [(x1 - x0) / length, (y1 - y0) / length];
    const inside = [];
    let [low, high] = [Infinity, -Infinity];
    for (let i = 0; i < total; i++) {
      const [dx, dy] = [points.x[i] - x0, points.y[i] - y0];
      const along = dx * ux + dy * uy;
      if (along < 0 || along > length || Math.abs(dy * ux - dx * uy) > thickness / 2) continue;
      inside.push([i, along]);
      low = Math.min(low, points.z[i]);
      high = Math.max(high, points.z[i]);
    }
    const context = section.getContext("2d");
    context.clearRect(0, 0, section.width, section.height);
    const scale = Math.min((section.width - 20) / length, 3 * (section.height - 40) / Math.max(1, high - low));
    const tall = Math.min(scale, (section.height - 40) / Math.max(1e-6, high - low));
    for (const [i, along] of inside) {
      context.fillStyle = rgb(colour(i));
      context.fillRect(10 + along * scale, section.height - 24 - (points.z[i] - low) * tall, 3, 3);
    }
    context.fillStyle = getComputedStyle(section).color;
    context.font = "20px system-ui";
    const text = inside.length ? `${length.toFixed(1)} m long, ${(high - low).toFixed(1)} m high, ${inside.length.toLocaleString("en")} points` : "no points along this line";
    context.fillText(text, 10, section.height - 4);
    const at = line.map((point) => map.toScene(map.lngLat(point)));
    map.shapes("line", [{ type: "LineString", points: at }], LINE);
  };
  section.addEventListener("keydown", ({ key }) => {
    const step = { ArrowUp: [0, 1], ArrowDown: [0, -1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] }[key];
    if (!step) return;
    line = line.map(([x, y]) => [x + step[0], y + step[1]]);
    drawSection();
  });
  let dragging = false;
  map.map.on("mousedown", (event) => {
    if (!event.originalEvent.shiftKey && !drag.checked) return;
    event.preventDefault(); // the map stays where it is
    dragging = true;
    line = [map.metres(event.lngLat), map.metres(event.lngLat)];
  });
  map.map.on("mousemove", (event) => {
    if (!dragging) return;
    line[1] = map.metres(event.lngLat);
    drawSection();
  });
  map.map.on("mouseup", () => { dragging = false; });

  const legend = () => {
    const box = document.getElementById("legend");
    if (by === "height") return box.replaceChildren("0 m above ground … ", `${most.toFixed(1)} m`);
    if (by === "wrong") return box.replaceChildren(chip([185, 196, 208]), "as in the file ", chip(WRONG), "another class");
    const names = scene.classes.map(({ name, colour: own }, number) => {
      const count = now.label.reduce((sum, label) => sum + (label === number), 0);
      return el("button", { type: "button", disabled: true }, chip(own), name, el("small", {}, by === "prediction" ? percent(count / total) : ""));
    });
    box.replaceChildren(...names);
  };
  const draw = () => { above(); drawSection(); legend(); };
  const prediction = { update: latest(async () => {
    const before = now;
    now = await arrays("map", { off: page.offList() }, "encoding and decoding …");
    draw();
    if (before) page.changed(now.label.reduce((sum, label, i) => sum + (label !== before.label[i]), 0) / total);
  }) };
  page.prediction = prediction;

  const facts = el("div", {}, el("p", { className: "hint" }, "Click a point from above."));
  const query = latest(async (lngLat) => {
    const [x, y] = map.metres(lngLat);
    let best = null;
    for (let i = 0; i < total; i++) {
      const distance = Math.hypot(points.x[i] - x, points.y[i] - y) - 1e-3 * points.z[i]; // of points above each other the highest
      if (best === null || distance < best[0]) best = [distance, i];
    }
    const { outputs, attention, observed } = await request("at", { index: best[1], off: page.offList() }, "decoding …");
    const classes = outputs.map((share, i) => ({ name: scene.classes[i].name, share, colour: scene.classes[i].colour })).sort((a, b) => b.share - a.share);
    const each = attention.map(({ sensor, band, share }) => ({ name: `${sensor} ${band}`, share })).sort((a, b) => b.share - a.share);
    const values = observed.map(([name, value]) => el("span", {}, el("small", {}, name), Math.abs(value) < 1000 ? String(+value.toPrecision(4)) : String(+value.toFixed(2))));
    facts.replaceChildren(el("h2", {}, "Probabilities"), bars(classes), ...(each.length ? [el("h2", {}, "Attention by channel"), bars(each)] : []), el("h2", {}, "The point"), el("div", { className: "values" }, ...values));
    open("Query");
  });
  map.map.on("click", (event) => !drag.checked && query(event.lngLat));
  const options = [["prediction", "prediction"], ["height", "height above ground"]];
  if (points.classified) options.splice(1, 0, ["file", "class in the file"], ["wrong", "where they differ"]);
  const drag = el("input", { type: "checkbox", checked: true });
  const wide = el("input", { type: "number", min: 0.1, step: 0.5, value: thickness });
  wide.addEventListener("change", () => { thickness = Math.max(0.1, Number(wide.value)); drawSection(); });
  const open = tabs({
    View: { content: [
      field("Colour", select(options, by, (value) => { by = value; draw(); })),
      el("h2", {}, "Cross-section"), section,
      el("label", { className: "check" }, drag, "drag on the map draws its line (or hold Shift)"),
      field("Width in metres", wide),
    ] },
    Switches: switchPanel(page),
    Query: { content: [facts] },
  });
  await prediction.update();
  document.body.dataset.ready = "true";
}
