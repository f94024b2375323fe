// The map: MapLibre shows canvases in a frame of metres around the scene, so that every coordinate system is drawn as it is.

import { Failure } from "./api.js";
import * as maplibre from "./vendor/maplibre-gl.mjs";

if (window.atomizer) maplibre.setWorkerUrl(window.atomizer.worker); // of a notebook

const EARTH_M = 40075016.685578488; // around the equator, where the frame is laid out
const EMPTY = { type: "FeatureCollection", features: [] };

export class SceneMap {
  constructor(container, grid) {
    this.grid = grid;
    const style = { version: 8, sources: {}, layers: [] };
    const dark = matchMedia("(prefers-color-scheme: dark)");
    if (!document.createElement("canvas").getContext("webgl2"))
      throw new Failure("The map needs WebGL 2, which this browser does not offer: switch hardware acceleration on, or use another one.");
    this.map = new maplibre.Map({
      container,
      style,
      attributionControl: false,
      pitchWithRotate: false,
      maxPitch: 0,
      fadeDuration: 0,
      bounds: this.bounds(),
      fitBoundsOptions: { padding: { top: 56, bottom: 24, left: 24, right: 24 } }, // below the legend
      maxZoom: 24,
      renderWorldCopies: false,
    });
    this.map.addControl(new maplibre.NavigationControl({ visualizePitch: false }), "top-right");
    this.map.addControl(new maplibre.ScaleControl({ maxWidth: 140 }), "bottom-left");
    const backdrop = () => this.map.setPaintProperty("backdrop", "background-color", dark.matches ? "#14181d" : "#e8ebee");
    this.ready = new Promise((resolve) => {
      this.map.once("load", () => {
        this.map.addLayer({ id: "backdrop", type: "background" });
        backdrop();
        dark.addEventListener("change", backdrop);
        resolve();
      });
    });
    this.canvases = new Map();
  }

  // metres east and north of the south-west corner <-> longitude and latitude of the frame
  lngLat([east, north]) {
    const { width, height, pixel_m: [dx, dy] } = this.grid;
    const x = 0.5 + (east - (width * dx) / 2) / EARTH_M;
    const y = 0.5 - (north - (height * dy) / 2) / EARTH_M;
    return new maplibre.MercatorCoordinate(x, y).toLngLat().toArray();
  }

  metres(lngLat) {
    const { width, height, pixel_m: [dx, dy] } = this.grid;
    const { x, y } = maplibre.MercatorCoordinate.fromLngLat(lngLat);
    return [(x - 0.5) * EARTH_M + (width * dx) / 2, (0.5 - y) * EARTH_M + (height * dy) / 2];
  }

  // coordinates of the scene's own CRS <-> the frame
  fromScene([x, y]) {
    const { height, pixel_m: [dx, dy], transform: [a, west, e, north] } = this.grid;
    return this.lngLat([((x - west) / a) * dx, (height - (y - north) / e) * dy]);
  }

  toScene(lngLat) {
    const { height, pixel_m: [dx, dy], transform: [a, west, e, north] } = this.grid;
    const [across, up] = this.metres(lngLat);
    return [west + (a * across) / dx, north + e * (height - up / dy)];
  }

  bounds() {
    const { width, height, pixel_m: [dx, dy] } = this.grid;
    return [this.lngLat([0, 0]), this.lngLat([width * dx, height * dy])];
  }

  // Show pixels (a canvas of any size over the whole scene), or show them anew.
  show(id, canvas) {
    const [[west, south], [east, north]] = this.bounds();
    if (!this.canvases.has(id)) {
      const own = document.createElement("canvas");
      own.width = canvas.width;
      own.height = canvas.height;
      this.canvases.set(id, own);
      own.getContext("2d").drawImage(canvas, 0, 0);
      const coordinates = [[west, north], [east, north], [east, south], [west, south]];
      this.map.addSource(id, { type: "canvas", canvas: own, coordinates, animate: false });
      const paint = { "raster-resampling": "nearest", "raster-fade-duration": 0 };
      this.map.addLayer({ id, type: "raster", source: id, paint }, this.firstVector());
      return;
    }
    const context = this.canvases.get(id).getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(canvas, 0, 0);
    const source = this.map.getSource(id);
    source.play(); // takes the new pixels ...
    source.pause(); // ... once
    this.map.triggerRepaint();
  }

  firstVector() {
    return this.map.getStyle().layers.find((layer) => layer.type !== "raster" && layer.type !== "background")?.id;
  }

  opacity(id, share) {
    this.map.setPaintProperty(id, "raster-opacity", share);
  }

  // Points, lines and areas in coordinates of the scene; `layers` are those of MapLibre, made on first use.
  shapes(id, features, layers) {
    const data = { ...EMPTY, features: features.map((shape) => this.feature(shape)) };
    const source = this.map.getSource(id);
    if (source) return source.setData(data);
    this.map.addSource(id, { type: "geojson", data });
    layers.forEach((layer, number) => this.map.addLayer({ ...layer, id: `${id}-${number}`, source: id }));
  }

  feature({ type, points, ...properties }) {
    const at = points.map((point) => this.fromScene(point));
    const coordinates = { Point: at[0], LineString: at, Polygon: [[...at, at[0]]] }[type];
    return { type: "Feature", properties, geometry: { type, coordinates } };
  }
}
