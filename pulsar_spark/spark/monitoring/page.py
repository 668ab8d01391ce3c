"""The live page without its script: HTML and style. SCRIPT and STYLE mark where those are inserted."""

from __future__ import annotations

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Pulsar queries</title>
<link rel="icon" href="data:,">
<style>STYLE</style>
</head>
<body>
<header>
<h1>Pulsar queries</h1>
<p id="state" role="status">connecting</p>
</header>
<main id="queries"></main>
<footer><a href="metrics">metrics for Prometheus</a> <a href="queries.json">JSON</a></footer>
<script>SCRIPT</script>
</body>
</html>
"""

STYLE = """
:root {
  --page: #f4f6f9; --card: #ffffff; --line: #dfe4ea; --text: #17202b; --quiet: #5c6877;
  --backlog: #c2410c; --rows: #0f766e; --time: #4f46e5; --good: #15803d; --bad: #b91c1c; --warn: #fef3c7;
  --warntext: #78350f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #10151c; --card: #19212b; --line: #2c3744; --text: #e8edf3; --quiet: #9aa7b6;
    --backlog: #fb923c; --rows: #2dd4bf; --time: #a5b4fc; --good: #4ade80; --bad: #f87171; --warn: #422f0b;
    --warntext: #fcd34d;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 20px 24px; max-width: 1280px; background: var(--page); color: var(--text);
  font: 15px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
header { display: flex; align-items: baseline; justify-content: space-between; gap: 16px; }
h1 { font-size: 22px; margin: 0; }
h2 { font-size: 18px; margin: 0; overflow-wrap: anywhere; }
h3 { font-size: 13px; font-weight: 600; margin: 0 0 4px; color: var(--quiet); }
#state { margin: 0; color: var(--quiet); font-variant-numeric: tabular-nums; }
#state::before { content: "\\25CF\\00A0"; color: var(--good); }
#state.lost { color: var(--bad); }
#state.lost::before { color: var(--bad); }
.card {
  background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px;
  margin-top: 16px;
}
.head { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 12px; }
.quiet { color: var(--quiet); }
.warning {
  background: var(--warn); color: var(--warntext); border-radius: 6px; padding: 2px 9px; font-size: 13px;
}
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin: 14px 0;
}
.tile b {
  display: block; font-size: 24px; font-weight: 600; line-height: 1.2; font-variant-numeric: tabular-nums;
}
.tile span { color: var(--quiet); font-size: 13px; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(320px, 100%), 1fr)); gap: 18px; }
svg { display: block; width: 100%; height: 170px; }
svg text { fill: var(--quiet); font-size: 11px; font-variant-numeric: tabular-nums; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .area { opacity: .14; stroke: none; }
svg .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
svg .backlog { fill: var(--backlog); stroke: var(--backlog); }
svg .rows { fill: var(--rows); stroke: var(--rows); }
svg .time { fill: var(--time); stroke: var(--time); }
svg .line.backlog, svg .line.rows, svg .line.time { fill: none; }
svg .mark { stroke: var(--quiet); stroke-dasharray: 3 3; }
svg .value { fill: var(--text); font-weight: 600; }
details { margin-top: 12px; }
summary { cursor: pointer; color: var(--quiet); font-size: 13px; }
table { border-collapse: collapse; width: 100%; margin-top: 8px; font-size: 13px; }
th { text-align: left; font-weight: 600; color: var(--quiet); }
th, td { padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
footer { margin: 18px 0 4px; font-size: 13px; }
footer a { color: var(--quiet); margin-right: 14px; }
"""
