"""The look of all pages: one column, quiet, by day and by night."""

STYLE = """
:root {
  color-scheme: light dark;
  --ink: #1d2129; --soft: #5b6472; --line: #dfe3e8; --back: #f6f7f9; --card: #fff;
  --error: #c02f2f; --warning: #a86400; --note: #2f6fb3; --good: #2b7d46;
  --c0: #2f6fb3; --c1: #c4561f; --c2: #2b7d46; --c3: #8a4fbf; --c4: #a3790b;
  --c5: #c03a76; --c6: #14838a; --c7: #6b7280;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ink: #e6e8eb; --soft: #9aa4b1; --line: #323840; --back: #15181c; --card: #1d2126;
    --error: #ff8a80; --warning: #f0b35a; --note: #82b7f2; --good: #7fd49b;
    --c0: #72aef0; --c1: #f2935c; --c2: #7fd49b; --c3: #c39af0; --c4: #e0bd55;
    --c5: #f08fb8; --c6: #62cfd6; --c7: #a3abb7;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.05rem; line-height: 1.35; margin: 0; overflow-wrap: anywhere; }
p { margin: .35rem 0 0; max-width: 46rem; }
a { color: inherit; text-underline-offset: .15em; }
code { font: .92em ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.soft { color: var(--soft); }
.verdict { font-weight: 600; margin-top: .75rem; }
.facts {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr));
  gap: 1rem 1.5rem; margin: 1.75rem 0; padding: 1.1rem 1.25rem;
  background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
}
.facts dt { color: var(--soft); font-size: .82rem; }
.facts dd { margin: 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
section .facts { margin: .9rem 0 0; padding: 0; border: 0; }
section {
  margin-top: 1rem; padding: 1.1rem 1.25rem; background: var(--card);
  border: 1px solid var(--line); border-left: .25rem solid var(--edge, var(--line));
  border-radius: .6rem;
}
.error { --edge: var(--error); } .warning { --edge: var(--warning); }
.note { --edge: var(--note); } .good { --edge: var(--good); }
.level {
  color: var(--edge); font-size: .75rem; font-weight: 600; letter-spacing: .06em;
  text-transform: uppercase;
}
.verdict.error, .verdict.good, .verdict.warning, .verdict.note { color: var(--edge); }
ul.contents { list-style: none; padding: 0; margin: 0 0 1.5rem; }
ul.contents li { padding: .2rem 0; display: flex; gap: .75rem; }
ul.contents .level { flex: 0 0 5rem; line-height: 1.9rem; }
.pictures { display: flex; flex-wrap: wrap; gap: .9rem; margin-top: .9rem; }
.group {
  display: flex; flex-wrap: wrap; gap: .9rem; padding: .8rem;
  border: 1px solid var(--line); border-radius: .5rem;
}
figure { margin: 0; width: 7.5rem; }
figure .frame {
  height: 7.5rem; display: grid; place-items: center; overflow: hidden;
  background: var(--back); border: 1px solid var(--line); border-radius: .35rem;
  color: var(--soft); font-size: .8rem;
}
figure img { max-width: 100%; max-height: 100%; min-width: 3.5rem; }
figure img.tiny {
  width: 100%; height: 100%; object-fit: contain; image-rendering: pixelated;
}
figcaption {
  font-size: .76rem; line-height: 1.35; margin-top: .35rem; overflow-wrap: anywhere;
}
figcaption b { font-weight: 600; }
figure.large { width: 11.5rem; }
figure.large .frame { height: 11.5rem; }
figure.large img { width: 100%; height: 100%; object-fit: contain; }
.zoom { display: contents; cursor: zoom-in; }
.zoom input { position: absolute; opacity: 0; pointer-events: none; }
.zoom input:focus-visible + img { outline: 3px solid var(--note); }
figure .zoom input:checked + img {
  position: fixed; inset: 0; z-index: 2; width: 100vw; height: 100vh;
  max-width: none; max-height: none; object-fit: contain; padding: 3vmin;
  background: var(--back); cursor: zoom-out;
}
table {
  border-collapse: collapse; width: 100%; margin-top: .9rem;
  font-variant-numeric: tabular-nums;
}
th { text-align: left; font-size: .82rem; font-weight: 500; color: var(--soft); }
th, td {
  padding: .22rem .75rem .22rem 0; border-bottom: 1px solid var(--line);
  overflow-wrap: anywhere;
}
td.number, th.number { text-align: right; white-space: nowrap; }
td.bars { width: 40%; }
.bar { display: block; min-width: 3rem; }
.bar i {
  display: block; height: .65rem; border-radius: .2rem; background: var(--note);
  opacity: .75;
}
.wide {
  overflow-x: auto; scrollbar-width: thin;
  background:
    linear-gradient(to right, var(--card) 30%, transparent) left / 3rem 100% local,
    linear-gradient(to left, var(--card) 30%, transparent) right / 3rem 100% local,
    linear-gradient(to right, var(--line), transparent) left / .8rem 100% scroll,
    linear-gradient(to left, var(--line), transparent) right / .8rem 100% scroll,
    var(--card);
  background-repeat: no-repeat;
}
.wide th, .wide td { overflow-wrap: normal; }
.wide th { white-space: nowrap; }
.pinned th:first-child, .pinned td:first-child {
  position: sticky; left: 0; background: var(--card);
  min-width: 9rem; max-width: 15rem;
}
.wide td { max-width: 22rem; overflow-wrap: break-word; }
h3 { font-size: .9rem; line-height: 1.35; margin: 0; font-weight: 600; }
pre {
  overflow-x: auto; margin: .75rem 0 0; padding: .7rem .9rem; border-radius: .4rem;
  background: var(--back); border: 1px solid var(--line);
  font: .82rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace;
}
details { margin-top: .75rem; }
summary { cursor: pointer; color: var(--soft); }
nav { margin: 1.25rem 0 0; display: flex; flex-wrap: wrap; gap: .3rem 1.1rem; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr));
  gap: .75rem; margin: 1.25rem 0 0;
}
.tiles div {
  padding: .8rem 1rem; background: var(--card); border: 1px solid var(--line);
  border-radius: .6rem; min-width: 0; overflow-wrap: anywhere;
}
.tiles b { display: block; font-size: 1.5rem; line-height: 1.25; font-weight: 650; }
.tiles span { color: var(--soft); font-size: .82rem; }
.charts {
  display: grid; gap: 1.25rem 1.5rem; margin-top: .9rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 21rem), 1fr));
}
.chart { min-width: 0; }
.legend {
  display: flex; flex-wrap: wrap; gap: .1rem .9rem; font-size: .8rem;
  color: var(--soft); overflow-wrap: anywhere;
}
.legend i, .swatch i {
  display: inline-block; width: .8rem; height: .2rem; border-radius: .1rem;
  background: var(--c); vertical-align: middle; margin-right: .35rem;
}
svg { display: block; width: 100%; height: auto; margin-top: .3rem; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg .grid { stroke: var(--line); stroke-width: 1; fill: none; }
svg .mark { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; fill: none; }
svg .line { fill: none; stroke: var(--c); stroke-width: 1.7; stroke-linejoin: round; }
svg .dots { fill: var(--c); }
svg .area { fill: var(--c); }
svg.square { max-width: 26rem; }
svg.matrix { max-width: 40rem; }
svg.matrix .over { fill: var(--card); }
svg.matrix .seen { fill: var(--ink); }
.k0 { --c: var(--c0); } .k1 { --c: var(--c1); } .k2 { --c: var(--c2); }
.k3 { --c: var(--c3); } .k4 { --c: var(--c4); } .k5 { --c: var(--c5); }
.k6 { --c: var(--c6); } .k7 { --c: var(--c7); }
.stack { display: flex; height: 1rem; border-radius: .3rem; overflow: hidden; }
.stack i { background: var(--c); }
.wrong b { color: var(--error); }
.pair { display: flex; gap: .4rem; }
.pair figure { width: 6rem; }
.pair figure .frame { height: 6rem; }
.best { font-weight: 650; color: var(--good); }
.changed td:first-child { font-weight: 600; }
"""
