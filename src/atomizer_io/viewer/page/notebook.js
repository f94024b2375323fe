// The page in the output of a notebook: in a frame of its own, with messages to the kernel instead of requests.

export default {
  render({ model, el }) {
    const files = model.get("files");
    const made = new Map();
    const blob = (text) => URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    const address = (name) => {
      if (!made.has(name)) {
        const linked = files[name].replace(/from "\.\/([^"]+)"/g, (_, path) => `from "${address(path)}"`);
        made.set(name, blob(linked));
      }
      return made.get(name);
    };
    const waiting = new Map();
    let number = 0;
    const request = (name, values) =>
      new Promise((resolve) => {
        number += 1;
        waiting.set(number, resolve);
        model.send({ number, name, values });
      });
    const received = ({ number: own, status, type }, buffers) => {
      waiting.get(own)?.({ status, type, bytes: buffers[0] });
      waiting.delete(own);
    };
    model.on("msg:custom", received);
    const key = `atomizer-${Math.random().toString(36).slice(2)}`;
    globalThis[key] = { request, worker: address("vendor/maplibre-gl-worker.mjs") };
    const styles = ["vendor/maplibre-gl.css", "style.css"].map((name) => `<style>${files[name]}</style>`);
    const body = files["index.html"].match(/<body>([^]*)<\/body>/)[1];
    const frame = document.createElement("iframe");
    frame.title = "atomizer view";
    Object.assign(frame.style, { width: "100%", height: `${model.get("height")}px`, border: "1px solid #8886" });
    frame.srcdoc = `<!doctype html><html lang="en"><head><meta charset="utf-8">${styles.join("")}
      <script>window.atomizer = parent["${key}"];</script></head>
      <body>${body}<script type="module" src="${address("main.js")}"></script></body></html>`;
    el.append(frame);
    return () => {
      model.off("msg:custom", received);
      made.forEach((url) => URL.revokeObjectURL(url));
      delete globalThis[key];
    };
  },
};
