// The dial: strategy, α, κ, m, k after training; time, positions decoded, and where the map differs from dense.

import { arrays, latest } from "./api.js";
import { count, el, field, percent, seconds, select } from "./dom.js";

export function costPanel(page) {
  const { strategies, alphas, own, grid } = page.scene;
  const dial = { strategy: "dense", alpha: null, kappa: null, budget: null, neighbors: null };
  const result = el("div", { "aria-live": "polite" });
  const drawn = { what: "differs", facts: null };
  const mark = () => {
    page.prediction.marks = drawn.facts?.[drawn.what] ?? null;
    page.prediction.draw();
  };
  const run = latest(async () => {
    const facts = await arrays("map", { off: page.offList(), dial }, "predicting at this cost …");
    page.prediction.compare(null);
    page.prediction.set(facts, page.scene.classes);
    drawn.facts = facts;
    mark();
    const rows = [
      ["time", seconds(facts.seconds)],
      ["positions decoded", `${count(facts.decoded)} of ${count(facts.positions)} (${percent(facts.decoded / facts.positions)})`],
      ["differs from dense", percent(facts.differing, 2)],
    ];
    const table = el("table", { className: "facts" }, ...rows.map(([name, text]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, text))));
    const where = select([["differs", "where it differs from dense"], ["queried", "positions decoded"], ["", "nothing"]], drawn.what, (value) => { drawn.what = value; mark(); });
    result.replaceChildren(table, field("Mark on the map", where));
  });
  const number = (name, label, usual, hint) => {
    const input = el("input", { type: "number", min: 1, step: 1, placeholder: usual, inputMode: "numeric" });
    input.addEventListener("change", () => {
      dial[name] = input.value === "" ? null : Math.max(1, Math.round(Number(input.value)));
      run();
    });
    return field(label, input, hint);
  };
  const strategy = select(strategies.map((name) => [name, name]), dial.strategy, (value) => { dial.strategy = value; run(); });
  const content = [field("Strategy", strategy, "which positions are decoded; the rest follow from them")];
  if (alphas.length) {
    const options = [["", "by hand"], ...alphas.map((alpha) => [alpha, `at most ${percent(alpha)} may differ`])];
    content.push(field("Promise (α)", select(options, "", (value) => {
      dial.alpha = value === "" ? null : Number(value);
      dial.strategy = value === "" ? strategy.value : "";
      run();
    }), "calibrated: sets everything below"));
  }
  content.push(
    el("div", { className: "three" },
      number("kappa", "κ", own.kappa ?? "", "atoms per latent"),
      number("budget", "m", "all", "atoms of a cell"),
      number("neighbors", "k", own.neighbors ?? "", "latents read")),
    el("p", { className: "buttons" },
      el("button", { type: "button", onclick: run }, "Predict at this cost"),
      el("button", { type: "button", onclick: () => { drawn.facts = null; result.replaceChildren(); page.prediction.update(); } }, "Back to dense")),
    result,
    el("small", {}, `The reference is the model's own prediction: all ${count(grid.width * grid.height)} pixels, whole cells.`),
  );
  return { content };
}
