// The live page's script: it requests the figures every two seconds and draws them.
// Names are set as text, never as HTML.
"use strict";
const EVERY = 2000, SVG = "http://www.w3.org/2000/svg";
const opened = new Set(), hovered = new Map();
let latest = null, lostSince = null;

function el(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) made.setAttribute(name, value);
  for (const child of children) if (child !== null) made.append(child);
  return made;
}
function svg(tag, attributes, text) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
function short(value) {
  if (value === null || value === undefined) return "\u2013";
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size * 0.99995) return digits(value / size) + " " + unit;
  }
  return digits(value);
}
function digits(value) {
  return String(Number(value.toPrecision(value >= 100 ? Math.ceil(Math.log10(value + 1)) : 3)));
}
function whole(value) { return value === null ? "\u2013" : Math.round(value).toLocaleString("en"); }
function seconds(value) {
  if (value === null) return "\u2013";
  if (value === 0) return "0";
  if (value < 1) return Math.round(value * 1000) + " ms";
  if (value < 120) return digits(value) + " s";
  return value < 7200 ? Math.round(value / 60) + " min" : digits(value / 3600) + " h";
}
function clock(time) { return new Date(time).toLocaleTimeString("en-GB"); }

function ticks(most) {
  if (!(most > 0)) return [0, 1];
  const rough = most / 3, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(each => each * power >= rough);
  const found = [];
  for (let value = 0; value < most + step * 0.999; value += step) found.push(value);
  return found;
}
function chart(key, title, kind, width, points, format) {
  points = points.filter(each => each[1] !== null);
  const height = 170, left = 52, right = width - 8, top = 10, bottom = height - 22;
  const last = points.length ? points[points.length - 1][1] : null;
  const picture = svg("svg", {
    viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${title}, last: ${last === null ? "nothing yet" : format(last)}`,
  });
  const box = el("div", {}, el("h3", {}), picture);
  box.firstChild.textContent = title;
  const marks = ticks(Math.max(0, ...points.map(each => each[1])));
  const first = points.length ? points[0][0] : 0, end = points.length ? points[points.length - 1][0] : 1;
  const x = time => left + (right - left) * (end > first ? (time - first) / (end - first) : 1);
  const y = value => bottom - (bottom - top) * value / marks[marks.length - 1];
  for (const mark of marks) {
    picture.append(svg("line", {x1: left, x2: right, y1: y(mark), y2: y(mark), class: "grid"}));
    picture.append(svg("text", {x: left - 6, y: y(mark) + 4, "text-anchor": "end"}, format(mark)));
  }
  if (!points.length) return box;
  const line = points.map(each => `${x(each[0]).toFixed(1)},${y(each[1]).toFixed(1)}`).join(" ");
  picture.append(svg("polygon", {
    points: `${x(first)},${bottom} ${line} ${x(end)},${bottom}`, class: `area ${kind}`}));
  picture.append(svg("polyline", {points: line, class: `line ${kind}`}));
  picture.append(svg("circle", {cx: x(end), cy: y(last), r: 3, class: kind}));
  if (end > first) picture.append(svg("text", {x: left, y: height - 6}, clock(first)));
  picture.append(svg("text", {x: right, y: height - 6, "text-anchor": "end"}, clock(end)));
  const mark = svg("g", {});
  picture.append(mark);
  const show = share => {
    const time = first + (end - first) * (share * width - left) / (right - left);
    const near = points.reduce((a, b) => Math.abs(b[0] - time) < Math.abs(a[0] - time) ? b : a);
    const at = x(near[0]), anchor = at > width / 2 ? "end" : "start";
    mark.replaceChildren(
      svg("line", {x1: at, x2: at, y1: top, y2: bottom, class: "mark"}),
      svg("text", {x: at + (anchor === "end" ? -6 : 6), y: top + 10, "text-anchor": anchor, class: "value"},
        `${format(near[1])} at ${clock(near[0])}`));
  };
  if (hovered.has(key)) show(hovered.get(key));
  picture.addEventListener("pointermove", event => {
    const place = picture.getBoundingClientRect();
    hovered.set(key, (event.clientX - place.left) / place.width);
    show(hovered.get(key));
  });
  picture.addEventListener("pointerleave", () => { hovered.delete(key); mark.replaceChildren(); });
  return box;
}
function chartWidth(count) {
  // As the style's grid makes it, so that a unit of a chart is a pixel, and its text is not stretched.
  const room = document.getElementById("queries").clientWidth - 38;
  const columns = Math.max(1, Math.min(count, Math.floor((room + 18) / 338)));
  return (room - 18 * (columns - 1)) / columns;
}
function tile(value, label) {
  const made = el("div", {class: "tile"}, el("b"), el("span"));
  made.firstChild.textContent = value;
  made.lastChild.textContent = label;
  return made;
}
function warning(count, one, many) {
  return count ? el("span", {class: "warning"}, `${whole(count)} ${count === 1 ? one : many}`) : null;
}

function partitions(query) {
  if (!query.partitionCount) return null;
  const rows = query.partitions.map(each => el("tr", {},
    el("td", {}, each.topic),
    el("td", {class: "number"}, each.partition === "-1" ? "\u2013" : each.partition),
    el("td", {class: "number"}, whole(each.entries)), el("td", {class: "number"}, whole(each.messages)),
    el("td", {class: "number"}, each.end)));
  const names = [["Topic", ""], ["Partition", "number"], ["Entries waiting", "number"],
    ["Messages, about", "number"], ["End of the topic", "number"]];
  const head = el("tr", {}, ...names.map(([name, kind]) => el("th", {class: kind, scope: "col"}, name)));
  const listed = query.partitions.length;
  const many = query.partitionCount > listed ? `, the longest ${listed}` : "";
  const made = el("details", {}, el("summary", {}, `Topic partitions: ${query.partitionCount}${many}`),
    el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows)));
  made.open = opened.has(query.name);
  made.addEventListener("toggle", () => made.open ? opened.add(query.name) : opened.delete(query.name));
  return made;
}
function card(query, failures, now) {
  const known = query.backlogMessages !== null;
  const late = query.progressMs === null ? null : Math.round(Math.max(0, now - query.progressMs) / 1000);
  const title = query.batch === null ? "first micro-batch of this run" : `micro-batch ${whole(query.batch)}`;
  const tiles = el("div", {class: "tiles"});
  if (query.reads) {
    tiles.append(tile((known ? "\u2248 " : "") + short(known ? query.backlogMessages : query.backlogEntries),
      known ? "messages behind" : "entries behind"));
    if (query.lagSeconds !== null) tiles.append(tile(seconds(query.lagSeconds), "age of the oldest of them"));
  }
  tiles.append(tile(short(query.rowsPerSecond), "rows a second"));
  if (query.reads) tiles.append(tile("\u2248 " + short(query.bytesPerSecond) + "B", "read a second"));
  if (query.writtenMessages) tiles.append(tile(short(query.writtenMessages), "messages written"));
  tiles.append(tile(seconds(query.batchSeconds), "last micro-batch"),
    tile(late === null ? "\u2013" : seconds(late), "since the last progress"));
  const backlog = query.backlogs.map(each => [each[0], known ? each[2] : each[1]]);
  const charts = el("div", {class: "charts"}), width = chartWidth(query.reads ? 3 : 2);
  if (query.reads) {
    charts.append(chart(query.name + "/backlog",
      known ? "Messages behind (estimate)" : "Broker entries behind", "backlog", width, backlog, short));
  }
  charts.append(
    chart(query.name + "/rows", "Rows a second", "rows", width,
      query.batches.map(each => [each[0], each[1]]), short),
    chart(query.name + "/time", "Micro-batch time", "time", width,
      query.batches.map(each => [each[0], each[2]]), seconds));
  return el("section", {class: "card"},
    el("div", {class: "head"}, el("h2", {}, query.name), el("span", {class: "quiet"}, title),
      warning(query.dataLosses, "loss of data", "losses of data"),
      warning(query.possibleDuplicates, "possible duplicate", "possible duplicates"),
      warning(query.endedPartitions, "ended partition", "ended partitions"),
      warning(query.retries, "retry", "retries"), warning(failures, "failed run", "failed runs")),
    tiles, charts, partitions(query));
}
function draw() {
  const place = document.getElementById("queries"), state = document.getElementById("state");
  state.classList.toggle("lost", lostSince !== null);
  if (lostSince !== null) state.textContent = `no answer since ${clock(lostSince)}`;
  if (latest === null) return;
  if (lostSince === null) state.textContent = `live, ${clock(latest.timeMs)}`;
  const running = new Set(latest.queries.map(each => each.name));
  const cards = latest.queries.map(each => card(each, latest.failedRuns[each.name] || 0, latest.timeMs));
  for (const [name, count] of Object.entries(latest.failedRuns)) {
    if (!running.has(name)) {
      cards.push(el("section", {class: "card"}, el("div", {class: "head"}, el("h2", {}, name),
        el("span", {class: "quiet"}, "does not run"), warning(count, "failed run", "failed runs"))));
    }
  }
  if (!cards.length) {
    cards.push(el("section", {class: "card"}, el("p", {class: "quiet"}, "No query reads from Pulsar yet.")));
  }
  place.replaceChildren(...cards);
}
async function ask() {
  try {
    const answer = await fetch("queries.json", {cache: "no-store"});
    if (!answer.ok) throw new Error(answer.status);
    latest = await answer.json();
    lostSince = null;
  } catch (error) {
    lostSince = lostSince || Date.now();
  }
  draw();
  setTimeout(ask, EVERY);
}
addEventListener("resize", draw);
ask();
