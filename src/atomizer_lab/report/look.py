"""How the report looks beside what all pages have: wide tables, tabs, charts, confusion matrices, digits."""

LOOK = """
:root {
  --c1: #b5452c; --c2: #7a5bb5; --c3: #2f8f4e; --c4: #b8860b; --c5: #b03a7c;
  --paper: #f3efe6; --here: #e8f3f6;
}
@media (prefers-color-scheme: dark) {
  :root {
    --c1: #f0876d; --c2: #b39ddb; --c3: #7ccf95; --c4: #e3bb55; --c5: #ec8fbf;
    --paper: #24231f; --here: #18282e;
  }
}
main { max-width: 76rem; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 0.6rem; }
section section { margin-top: 2.4rem; padding-top: 1.4rem; }
section > h2 + section { margin-top: 1rem; padding-top: 0; border-top: 0; }
.c1 { background: var(--c1); } .c2 { background: var(--c2); } .c3 { background: var(--c3); }
.c4 { background: var(--c4); } .c5 { background: var(--c5); }
.label { text-transform: none; letter-spacing: 0.02em; }
.facts dd { font-size: 1.35rem; white-space: nowrap; }
.todo { padding-left: 1.2rem; } .todo small { color: var(--quiet); font-size: 0.85rem; }
.todo li { margin: 0 0 0.7rem; overflow-wrap: anywhere; }
.made { color: var(--quiet); font-size: 0.85rem; overflow-wrap: anywhere; max-width: none; }
.missing { border-left: 3px solid var(--unet); padding-left: 0.9rem; max-width: 52rem; overflow-wrap: anywhere; }
.protocol { max-width: 52rem; }
.scale-note { margin-top: 1.2rem; color: var(--quiet); }
.shows { margin: 0.3rem 0 0.5rem; font-size: 1.25rem; line-height: 1.25; }
.shows::first-letter, .protocol::first-letter { text-transform: uppercase; }

.bars th:not(:first-child) { text-align: left; }
.sortable th { padding-top: 0.3rem; }
.sortable th button { all: unset; cursor: pointer; color: inherit; padding: 0.2rem 0; }
.sortable th button::after { content: " ↕"; opacity: 0.35; }
.sortable th[aria-sort=ascending] button::after { content: " ↑"; opacity: 1; }
.sortable th[aria-sort=descending] button::after { content: " ↓"; opacity: 1; }
.sortable th button:focus-visible, [role=tab]:focus-visible, summary:focus-visible {
  outline: 2px solid var(--ours); outline-offset: 2px; border-radius: 4px; }
.sortable th.group { text-align: left; font-weight: 600; color: var(--ink); white-space: nowrap; }
.sortable th.paper, .sortable td.paper { background: var(--paper); }
.sortable th.here, .sortable td.here { background: var(--here); }
.sortable td:first-child, .sortable th:first-child { position: sticky; left: 0; background: var(--card); z-index: 1;
  padding-left: 0; min-width: 7.5rem; }
.sortable tr.own td:first-child { color: var(--ours); font-weight: 650; }
.sortable td.none { color: var(--quiet); opacity: 0.6; }
.sortable code { font-size: 0.8rem; }
.words td { text-align: left; } .words th { text-align: left; }
.claims td { white-space: normal; } .claims td:nth-child(3) { min-width: 12rem; }

[role=tablist] { display: none; }
.js [role=tablist] { display: flex; flex-wrap: wrap; gap: 0.35rem; margin: 0 0 1rem; }
.js .alone { display: none; }
[role=tab] { font: 500 0.88rem/1.2 Inter, "Segoe UI", system-ui, -apple-system, Roboto, Arial, sans-serif;
  color: var(--quiet); background: transparent; border: 1px solid var(--line); border-radius: 999px;
  padding: 0.42rem 0.85rem; cursor: pointer; }
[role=tab]:hover { color: var(--ink); border-color: var(--quiet); }
[role=tab][aria-selected=true] { color: var(--ground); background: var(--ink); border-color: var(--ink); }
.scales > [role=tablist] { position: sticky; top: 0; z-index: 3; margin: 2.6rem 0 0; padding: 0.7rem 0;
  background: var(--ground); border-bottom: 1px solid var(--line); }
.scales > [role=tablist] [role=tab] { font-size: 1rem; padding: 0.5rem 1.1rem; }

.charts { display: grid; gap: 1.2rem; align-items: start; margin: 0 0 1.2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.chart { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 0.8rem 1rem 0.4rem; }
.chart figcaption { margin: 0 0 0.4rem; }
.chart svg { display: block; width: 100%; max-width: 40rem; height: auto;
  font: 12px Inter, "Segoe UI", system-ui, -apple-system, Roboto, Arial, sans-serif; }
.chart text { fill: var(--quiet); font-variant-numeric: tabular-nums; } .chart text.name { fill: var(--ink); }
.chart .grid { stroke: var(--line); stroke-width: 1; }
.chart .track { stroke: var(--quiet); stroke-width: 1.5; opacity: 0.5; }
.chart polyline { fill: none; stroke-width: 2; } .chart .ring { stroke: var(--card); stroke-width: 1.5; }
.chart .keys { margin: 0.5rem 0 0.4rem; gap: 0.2rem 1rem; }
.chart .keys i { border-radius: 50%; }
.s-ours { stroke: var(--ours); } .s-unet { stroke: var(--unet); } .s-pixels { stroke: var(--pixels); }
.s-c1 { stroke: var(--c1); } .s-c2 { stroke: var(--c2); } .s-c3 { stroke: var(--c3); }
.s-c4 { stroke: var(--c4); } .s-c5 { stroke: var(--c5); }
.f-ours { fill: var(--ours); } .f-unet { fill: var(--unet); } .f-pixels { fill: var(--pixels); }
.f-c1 { fill: var(--c1); } .f-c2 { fill: var(--c2); } .f-c3 { fill: var(--c3); }
.f-c4 { fill: var(--c4); } .f-c5 { fill: var(--c5); }
.chart circle.hollow { fill-opacity: 0.35; }

details { border-top: 1px solid var(--line); padding: 0.7rem 0; }
details[open] { padding-bottom: 1.2rem; }
summary { cursor: pointer;
  font: 600 0.95rem/1.4 Inter, "Segoe UI", system-ui, -apple-system, Roboto, Arial, sans-serif; }
details[open] > summary { margin-bottom: 0.8rem; }

.matrices { display: grid; gap: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, var(--least)), 1fr)); }
.matrix { min-width: 0; } .matrix figcaption { margin: 0 0 0.4rem; } .matrix .scroll { margin: 0; }
.matrix table { width: auto; font-size: 0.78rem; border-collapse: separate; border-spacing: 2px; }
.matrix th, .matrix td { padding: 0.28rem 0.4rem; border: 0; border-radius: 3px; }
.matrix th[scope=row] { text-align: left; color: var(--ink); }
.matrix th i { display: inline-block; width: 0.7em; height: 0.7em; border-radius: 2px; margin-right: 0.35em; }
.matrix td[style] { background: color-mix(in srgb, var(--ours) var(--share), var(--paper)); }
.matrix td.deep { color: var(--ground); }
.digits { display: grid; grid-template-columns: repeat(auto-fill, minmax(7.5rem, 1fr)); gap: 0.8rem; margin: 0 0 1rem; }
.digits img { image-rendering: pixelated; border: 1px solid var(--line); }
.digits span { display: block; } .digits .right { color: var(--good); } .digits .wrong { color: var(--c1); }
.digits .right::before { content: "✓ "; } .digits .wrong::before { content: "✗ "; }
.maps { display: flex; flex-wrap: wrap; align-items: flex-start; }
.maps figure { min-width: 6.5rem; max-width: 100%; flex: 0 1 auto; width: min-content; }
.maps img { aspect-ratio: auto; width: auto; max-width: min(100vw - 2rem, 26rem); height: 13rem; object-fit: contain; }
.plate { margin: 0 0 1.2rem; } .plate figcaption { color: #555; } .plate figcaption b { color: #222; }
@media (max-width: 40rem) {
  .card { padding: 0.7rem 0.8rem; }
  .sortable { font-size: 0.84rem; }
  .chart svg { font-size: 15px; }
  .sortable td:first-child, .sortable th:first-child { min-width: 5.6rem; max-width: 8.5rem; }
}
@media print { .js [hidden] { display: block !important; } .js [role=tablist] { display: none; } }
"""
