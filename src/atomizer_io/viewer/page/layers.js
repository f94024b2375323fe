// What lies below the prediction: a raster in three bands, or nothing; and how opaque the prediction is.

import { arrays, latest } from "./api.js";
import { el, field, select } from "./dom.js";

export function layersPanel(page) {
  const { rasters, grid } = page.scene;
  let [raster, bands] = [rasters.length ? 0 : -1, rasters[0]?.first];
  const canvas = el("canvas", { width: grid.width, height: grid.height });
  const choices = el("div", { className: "three" });
  const update = latest(async () => {
    if (raster >= 0) {
      const { rgba } = await arrays("layer", { raster, bands }, "reading …");
      canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(rgba), grid.width), 0, 0);
    } else canvas.getContext("2d").clearRect(0, 0, canvas.width, canvas.height);
    page.map.show("raster", canvas);
    if (page.map.map.getLayer("prediction")) page.map.map.moveLayer("raster", "prediction");
  });
  const drawChoices = () => {
    choices.hidden = raster < 0;
    choices.replaceChildren(
      ...["Red", "Green", "Blue"].map((name, i) => {
        const options = raster < 0 ? [] : rasters[raster].bands.map((band, number) => [number, band.name]);
        return field(name, select(options, bands?.[i], (value) => { bands = bands.with(i, Number(value)); update(); }));
      }),
    );
  };
  const choose = (value) => {
    raster = Number(value);
    bands = rasters[raster]?.first;
    drawChoices();
    update();
  };
  const options = rasters.map(({ name, date }, number) => [number, date ? `${name} · ${date}` : name]);
  drawChoices();
  const opacity = el("input", { type: "range", min: 0, max: 100, value: 75 });
  opacity.addEventListener("input", () => page.map.opacity("prediction", opacity.value / 100));
  const certainty = el("input", { type: "checkbox" });
  certainty.addEventListener("change", () => { page.prediction.certainty = certainty.checked; page.prediction.draw(); });
  const content = [
    field("Raster below", select([...options, [-1, "none"]], raster, choose), "stretched from the 2nd to the 98th percentile"),
    choices,
    field("Opacity of the map", opacity),
  ];
  if (!page.scene.classes.length) return { content, update };
  content.push(el("label", { className: "check" }, certainty, "fade where the map is uncertain"));
  const first = page.prediction.set.bind(page.prediction);
  page.prediction.set = (facts, classes) => { first(facts, classes); page.map.opacity("prediction", opacity.value / 100); };
  update();
  return { content };
}
