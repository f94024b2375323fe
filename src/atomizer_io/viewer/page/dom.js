// Elements from plain values: all text is set as text, never as markup.

export function el(tag, values = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else if (name in node && name !== "list") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const rgb = ([red, green, blue]) => `rgb(${red} ${green} ${blue})`;
export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
export const count = (number) => number.toLocaleString("en");
export const seconds = (number) => `${number < 0.1 ? number.toFixed(3) : number.toFixed(number < 10 ? 2 : 0)} s`;
export const chip = (colour) => el("i", { className: "chip", style: { background: rgb(colour) } });

export function bars(rows) {
  const most = Math.max(1e-9, ...rows.map((row) => row.share));
  return el(
    "table",
    { className: "bars" },
    ...rows.map(({ name, share, colour, text }) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, name),
        el(
          "td",
          {},
          el("b", { style: { width: `${(100 * share) / most}%`, background: colour ? rgb(colour) : "var(--accent)" } }),
        ),
        el("td", {}, text ?? percent(share)),
      ),
    ),
  );
}

export function field(label, control, hint) {
  return el("label", { className: "field" }, el("span", {}, label), control, hint ? el("small", {}, hint) : null);
}

export function select(options, value, onchange) {
  const control = el("select", { onchange: () => onchange(control.value) });
  control.append(...options.map(([key, text]) => el("option", { value: key, selected: String(key) === String(value) }, text)));
  return control;
}
