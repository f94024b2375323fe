// The page: what is open, which panel is shown, and what a click does.

import { guarded, request } from "./api.js";
import { el } from "./dom.js";
import { SceneMap } from "./map.js";
import { Prediction } from "./prediction.js";
import { costPanel } from "./cost.js";
import { labelPanel } from "./label.js";
import { layersPanel } from "./layers.js";
import { pointsPage } from "./points.js";
import { queryPanel } from "./query.js";
import { switchPanel } from "./switches.js";

await guarded(async () => {
  const scene = await request("scene", {}, "opening …");
  const name = scene.model.name.split("/").slice(-2).join("/");
  const size = `${scene.model.parameters.toLocaleString("en")} parameters`;
  document.getElementById("title").replaceChildren(el("b", {}, name), ` · ${scene.model.task} · ${size}`);
  await (scene.kind === "points" ? pointsPage(scene, tabs) : rastersPage(scene));
});

async function rastersPage(scene) {
  const map = new SceneMap("map", scene.grid);
  await map.ready;
  const page = { scene, map, off: { channels: new Set(), dates: new Set() } };
  page.prediction = new Prediction(page);
  page.offList = () => ({ channels: [...page.off.channels].map((key) => JSON.parse(key)), dates: [...page.off.dates] });
  const query = queryPanel(page);
  const panels = { Switches: switchPanel(page), Query: query, Layers: layersPanel(page) };
  if (scene.anywhere) panels.Cost = costPanel(page);
  if (scene.labelling) panels.Label = labelPanel(page);
  const open = tabs(panels);
  const act = (lngLat) => {
    const [x, y] = map.toScene(lngLat);
    const [a, west, e, north] = scene.grid.transform;
    const inside = [(x - west) / a / scene.grid.width, (y - north) / e / scene.grid.height];
    if (inside.some((share) => share < 0 || share >= 1)) return;
    if (open.current() === "Label" && panels.Label.act([x, y])) return;
    if (open.current() !== "Query") open("Query");
    query.at([x, y]);
  };
  map.map.on("click", (event) => act(event.lngLat.toArray()));
  const canvas = map.map.getCanvas();
  canvas.setAttribute("aria-label", "Map: arrow keys move it, + and − zoom, Enter queries the middle");
  canvas.addEventListener("keydown", (event) => event.key === "Enter" && act(map.map.getCenter().toArray()));
  const at = document.getElementById("coordinates");
  map.map.on("mousemove", (event) => {
    const [x, y] = map.toScene(event.lngLat.toArray());
    const digits = Math.abs(scene.grid.transform[0]) < 0.01 ? 5 : 1;
    at.replaceChildren(`${x.toFixed(digits)}, ${y.toFixed(digits)} ${scene.grid.crs ?? "m, no CRS"}`);
  });
  await page.prediction.update();
  document.body.dataset.ready = "true";
}

// Tabs with their panels; returns what opens one of them by name.
function tabs(panels) {
  const list = document.querySelector("[role=tablist]");
  let current = null;
  const open = (name) => {
    if (current !== name) panels[current]?.closed?.();
    current = name;
    for (const [key, { node }] of Object.entries(panels)) {
      const tab = document.getElementById(`tab-${key}`);
      tab.setAttribute("aria-selected", key === name);
      tab.tabIndex = key === name ? 0 : -1;
      node.hidden = key !== name;
    }
    panels[name].opened?.();
  };
  for (const [name, panel] of Object.entries(panels)) {
    list.append(el("button", { id: `tab-${name}`, role: "tab", type: "button", "aria-controls": `panel-${name}`, onclick: () => open(name) }, name));
    const values = { id: `panel-${name}`, role: "tabpanel", "aria-labelledby": `tab-${name}`, hidden: true };
    document.getElementById("panels").append((panel.node = el("section", values, ...panel.content)));
  }
  list.addEventListener("keydown", ({ key }) => {
    const names = Object.keys(panels);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[key];
    if (!step) return;
    open(names[(names.indexOf(current) + step + names.length) % names.length]);
    document.getElementById(`tab-${current}`).focus();
  });
  open.current = () => current;
  open(Object.keys(panels)[0]);
  return open;
}
