"""How pages look: type, spacing and colours, by day and by night, on a phone and on a desk."""

STYLE = """
:root {
  color-scheme: light dark;
  --ground: #fbfaf7; --card: #ffffff; --ink: #1f2430; --quiet: #626878; --line: #e4e1d9;
  --ours: #0b6e8a; --unet: #c2691c; --pixels: #7d8494; --good: #1d7a4c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #14161b; --card: #1c1f26; --ink: #e9e7e2; --quiet: #a0a6b4; --line: #323743;
    --ours: #5cc3de; --unet: #eda15e; --pixels: #8f96a6; --good: #6fcf9b;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--ink);
  font: 17px/1.6 "Source Serif 4", "Iowan Old Style", Palatino, "Palatino Linotype", Georgia, serif;
}
main { max-width: 60rem; margin: 0 auto; padding: clamp(1.5rem, 5vw, 4.5rem) clamp(1rem, 4vw, 2.5rem) 4rem; }
h1, h2, h3, table, figcaption, .facts, .keys, .tag, code, footer {
  font-family: Inter, "Segoe UI", system-ui, -apple-system, Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: clamp(2rem, 6vw, 3.2rem); line-height: 1.08; letter-spacing: -0.025em; margin: 0.2em 0 0.4em; }
h2 { font-size: clamp(1.35rem, 3.4vw, 1.8rem); line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 0.4em; }
.tag { color: var(--ours); font-size: 0.82rem; font-weight: 600; letter-spacing: 0.06em; text-transform: uppercase; }
.lead { font-size: clamp(1.08rem, 2.4vw, 1.28rem); max-width: 44rem; margin: 0 0 1.6em; }
p { max-width: 44rem; margin: 0 0 1.2em; }
section { margin-top: clamp(2.8rem, 7vw, 4.8rem); padding-top: 1.8rem; border-top: 1px solid var(--line); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 0.8rem; margin: 0; }
.facts div { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 0.9rem 1rem; }
.facts dt { color: var(--quiet); font-size: 0.8rem; line-height: 1.35; }
.facts dd { margin: 0 0 0.15rem; font-size: 1.55rem; font-weight: 650; letter-spacing: -0.02em; }
.scroll { overflow-x: auto; margin: 0 0 1.2rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.93rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.55rem 0.7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--quiet); font-weight: 500; font-size: 0.82rem; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; white-space: normal; }
td small { display: block; color: var(--quiet); font-size: 0.78rem; line-height: 1.3; }
td.best { font-weight: 700; color: var(--ours); }
tr.sum td { font-weight: 600; border-bottom: 2px solid var(--ink); }
.track { width: 34%; min-width: 11rem; }
.track div { position: relative; height: 1.1rem; border-radius: 6px; background: var(--ground); }
.track i { position: absolute; top: 50%; width: 0.72rem; height: 0.72rem; margin: -0.36rem 0 0 -0.36rem;
  border-radius: 50%; border: 2px solid var(--card); }
.track b { position: absolute; top: 50%; height: 2px; margin-top: -1px; background: var(--line); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 1rem 1.2rem; }
.ours { background: var(--ours); } .unet { background: var(--unet); } .pixels { background: var(--pixels); }
.keys { display: flex; flex-wrap: wrap; gap: 0.3rem 1.2rem; margin: 0 0 1rem; padding: 0; list-style: none;
  font-size: 0.85rem; color: var(--quiet); }
.keys i { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.45em; border-radius: 3px;
  vertical-align: -0.05em; }
.maps { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(9.2rem, 1fr)); margin: 0 0 1.2rem; }
figure { margin: 0; }
figure img { display: block; width: 100%; border-radius: 8px; }
.maps img { image-rendering: pixelated; aspect-ratio: 1; border: 1px solid var(--line); }
figcaption { margin-top: 0.4rem; font-size: 0.82rem; line-height: 1.35; color: var(--quiet); }
figcaption b { color: var(--ink); font-weight: 600; }
.plate { background: #ffffff; border: 1px solid var(--line); border-radius: 14px; padding: 0.6rem; overflow-x: auto; }
.plate img { min-width: 40rem; border-radius: 0; }
.bars td.bar { width: 38%; text-align: left; }
.bar span { display: inline-block; height: 0.75rem; border-radius: 3px; margin-right: 0.5em; vertical-align: -0.05em; }
footer { margin-top: 4rem; padding-top: 1.2rem; border-top: 1px solid var(--line); color: var(--quiet);
  font-size: 0.85rem; overflow-wrap: anywhere; }
code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 0.9em; }
@media (max-width: 40rem) {
  th, td { padding: 0.5rem 0.45rem; }
  .track { display: none; }
  .maps { grid-template-columns: repeat(auto-fill, minmax(7.6rem, 1fr)); gap: 0.8rem; }
}
"""
