// Probability by rank, both on log scales.

import { chance, count, power } from "./format.js";

const NS = "http://www.w3.org/2000/svg";
const EDGE = { left: 52, right: 12, top: 14, bottom: 26 };

function draw(kind, attributes, text) {
  const element = document.createElementNS(NS, kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

const powers = (low, high, step = 1) => {
  const found = [];
  for (let e = Math.ceil(low); e <= Math.floor(high); e += step) found.push(e);
  return found;
};

// data: {n, curve: [log p by rank], exact: {rank, log_prob} or null, drawn: [{p, rank or null}], head, mass}
export function plot(svg, data) {
  const width = svg.clientWidth || 600;
  const height = svg.clientHeight || 280;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const title = svg.querySelector("title");
  const right = width - EDGE.right;
  const base = height - EDGE.bottom;
  const toLog = Math.LN10;
  const highest = data.curve[0] / toLog;
  const last = data.exact ? data.exact.log_prob.at(-1) / toLog : Math.min(data.curve.at(-1), ...data.drawn.map((row) => row.logP)) / toLog;
  const low = Math.max(Math.min(last, highest - 0.5), highest - 14) - 0.15;
  const high = highest + 0.15;
  const widest = Math.log10(Math.max(data.n, 2));
  const x = (rank) => EDGE.left + ((right - EDGE.left) * Math.log10(rank)) / widest;
  const y = (logP) => EDGE.top + ((base - EDGE.top) * (high - logP / toLog)) / (high - low);
  const inside = (logP) => logP / toLog >= low;
  const parts = [];

  for (const e of powers(low, high, Math.max(1, Math.ceil((high - low) / 6)))) {
    parts.push(draw("line", { class: "grid", x1: EDGE.left, x2: right, y1: y(e * toLog), y2: y(e * toLog) }));
    parts.push(draw("text", { class: "axis", x: EDGE.left - 8, y: y(e * toLog) + 4, "text-anchor": "end" }, e >= -3 ? `${Number((100 * 10 ** e).toPrecision(1))}%` : power(10 ** e, 1)));
  }
  for (const e of powers(0, widest, (right - EDGE.left) / widest < 62 ? 2 : 1)) {
    parts.push(draw("line", { class: "grid", x1: x(10 ** e), x2: x(10 ** e), y1: EDGE.top, y2: base }));
    parts.push(draw("text", { class: "axis", x: x(10 ** e), y: base + 18, "text-anchor": e === 0 ? "start" : "middle" }, count(10 ** e)));
  }

  const path = (points) => points.map(([rank, logP], i) => `${i ? "L" : "M"}${x(rank).toFixed(1)} ${y(logP).toFixed(1)}`).join("");
  const ranked = data.curve.map((logP, i) => [i + 1, logP]).filter(([, logP]) => inside(logP));
  const head = ranked.filter(([rank]) => rank <= data.head);
  if (head.length > 1) {
    parts.push(draw("path", { class: "head", d: `${path(head)}L${x(head.at(-1)[0])} ${base}L${x(1)} ${base}Z` }));
    const end = x(Math.min(data.head, data.n));
    parts.push(draw("line", { class: "mark", x1: end, x2: end, y1: EDGE.top, y2: base }));
    const words = `the top ${count(data.head)} hold ${chance(data.mass)}`;
    const leftward = end > width / 2;
    parts.push(draw("text", { class: "says", x: end + (leftward ? -8 : 8), y: EDGE.top + 10, "text-anchor": leftward ? "end" : "start" }, words));
    title.textContent = `Probability by rank; ${words}`;
  }
  if (data.exact) {
    const points = data.exact.rank.map((rank, i) => [rank, data.exact.log_prob[i]]).filter(([, logP]) => inside(logP));
    parts.push(draw("path", { class: "line exact", d: path(points) }));
  }
  parts.push(draw("path", { class: "line", d: path(ranked) }));
  for (const row of data.drawn) {
    if (!inside(row.logP)) continue;
    if (row.rank === null) {
      // Its rank is not known, only that it lies beyond the ranked.
      const from = x(Math.min(data.curve.length, data.n));
      parts.push(draw("line", { class: "somewhere", x1: from, x2: right, y1: y(row.logP), y2: y(row.logP) }));
      continue;
    }
    const dot = draw("circle", { class: row.beyond ? "dot tail" : "dot", cx: x(row.rank), cy: y(row.logP), r: 4.5 });
    dot.append(draw("title", {}, `${row.name}: rank ${count(row.rank)}, ${chance(Math.exp(row.logP))}`));
    parts.push(dot);
  }
  svg.replaceChildren(title, ...parts);
}
