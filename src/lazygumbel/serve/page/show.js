// An answer on the page: facts, rows, the plot, and the truth of an audit.

import { HEAD } from "./answer.js";
import { chance, count, milliseconds, power, relative, short } from "./format.js";
import { fill } from "./lists.js";
import { plot } from "./plot.js";

export const $ = (id) => document.getElementById(id);

export function showFacts(answer, n, left) {
  const { entropy, entropyError, error, logZ, mass, drawn, rows, ms } = answer;
  const perplexity = Math.exp(entropy);
  $("perplexity").textContent = short(Math.min(left, Math.max(1, perplexity)));
  $("perplexity-error").textContent = `${relative(entropyError)}, of ${count(left)} rows`;
  $("log-z").textContent = logZ.toFixed(3);
  $("log-z-error").textContent = error ? `± ${error < 1e-6 ? "<10⁻⁶" : short(error, 2)}` : "exact";
  $("mass").textContent = chance(mass);
  $("mass-error").textContent = mass < 0.9995 ? `${chance(1 - mass)} lies beyond` : "next to nothing lies beyond";
  $("label").textContent = drawn.label;
  $("label").className = `label ${drawn.label}`;
  const allowed = drawn.bound ? `; a theorem allows these draws a total variation distance of ${power(drawn.bound, 1)}` : "";
  $("why").textContent = `${drawn.reason}${allowed}`;
  const share = rows / n;
  const part = share < 1 ? ` of ${count(n)} (${share >= 0.1 ? (100 * share).toFixed(0) : (100 * share).toPrecision(2)}%)` : "";
  $("work").textContent = `${count(rows)} rows read${part} in ${milliseconds(ms)}`;
}

export function showRows(answer, truth, actions) {
  const { topRows, drawnRows } = answer;
  const largest = Math.max(...topRows.map((row) => row.p), ...drawnRows.map((row) => row.p));
  const known = truth && new Map(truth.ids.map((id, i) => [id, { p: Math.exp(truth.log_prob[i]), rank: truth.rank[i] }]));
  fill($("top"), topRows, largest, known, actions);
  fill($("drawn"), drawnRows, largest, known, actions);
  const beyond = drawnRows.filter((row) => row.beyond).length;
  $("top-note").textContent = `${topRows.length} best, with relative errors`;
  $("drawn-note").textContent = beyond ? `${beyond} of ${drawnRows.length} beyond the top ${HEAD}` : `all among the top ${HEAD}`;
}

export function showPlot(answer, truth, n) {
  const ranks = truth && new Map(truth.ids.map((id, i) => [id, truth.rank[i]]));
  const drawn = answer.drawnRows.map((row) => ({ ...row, rank: ranks?.get(row.id) ?? row.rank }));
  plot($("plot"), {
    n,
    curve: answer.logPs,
    exact: truth?.curve ?? null,
    drawn,
    head: Math.min(HEAD, n),
    mass: truth?.mass[HEAD] ?? answer.mass,
  });
}

export function showTruth(answer, truth) {
  $("truth-key").hidden = truth === null;
  const section = $("truth");
  section.hidden = truth === null;
  if (!truth) return;
  const off = truth.bound !== null && truth.total_variation > truth.bound;
  section.className = off ? "truth off" : "truth";
  const line = (...parts) => {
    const paragraph = document.createElement("p");
    for (const part of parts) {
      const element = document.createElement(Array.isArray(part) ? "strong" : "span");
      element.textContent = part;
      paragraph.append(element);
    }
    return paragraph;
  };
  const errors = Math.abs(answer.logZ - truth.log_partition) / Math.max(answer.error, 1e-6);
  const allowed = truth.bound ? `; the theorem allows ${power(truth.bound, 1)}` : "";
  const distance = truth.total_variation ? power(truth.total_variation) : "0";
  section.replaceChildren(
    line("All ", [count(truth.rows)], " rows were read, in ", [milliseconds(truth.ms)], "."),
    line("One draw is ", [distance], ` from the softmax in total variation${allowed}.`),
    line("log Z is ", [truth.log_partition.toFixed(4)], answer.error > 1e-6 ? `: the estimate was ${errors.toFixed(1)} standard errors off.` : "."),
    line("Perplexity is ", [short(Math.exp(truth.entropy))], "; the top 100 hold ", [chance(truth.mass[HEAD])], "."),
  );
}
