// The state of the page, and what follows from it.

import { ask, get, hasToken } from "./api.js";
import { asPython, copy, curl } from "./code.js";
import { chance, count, milliseconds, power, relative, short } from "./format.js";
import { SHOWN, chips, fill } from "./lists.js";
import { plot } from "./plot.js";
import { QueryField } from "./query.js";

const HEAD = 100; // rows that "the top 100" speaks of
const RANKED = 1000; // rows of the curve
const REL_ERR = 0.003;
const DRAWN_TO = 5.5; // the first temperature: so many logits between the first row and the hundredth

const $ = (id) => document.getElementById(id);
const state = { query: "", temperature: null, seed: 0, excluded: [] };
let info = null;
let answer = null;
let truth = null;
let running = false;
let changed = false;
let topKey = null;
let top = null;

const settings = () => ({
  theta: !info.names && /^\d+$/.test(state.query) ? `#${state.query}` : state.query,
  ...(state.excluded.length ? { exclude: state.excluded.map((row) => row.id) } : {}),
});
const drawsAsked = () => ({
  ...settings(),
  temperature: state.temperature,
  size: Math.min(SHOWN, info.n - state.excluded.length),
  seed: state.seed,
});
const nameOf = (names, ids, i) => names?.[i] ?? `#${ids[i]}`;

// Asking: one round at a time; whatever changed meanwhile is asked for in the next.

async function refresh() {
  truth = null;
  changed = true;
  remember();
  $("answer").setAttribute("aria-busy", "true");
  if (running) return;
  running = true;
  while (changed) {
    changed = false;
    if (!state.query) break;
    try {
      await round();
      complain(null);
    } catch (error) {
      complain(error.message);
      $("answer").classList.add("stale");
    }
  }
  running = false;
  $("answer").setAttribute("aria-busy", "false");
}

async function round() {
  const given = settings();
  const key = JSON.stringify(given);
  if (key !== topKey) {
    top = await ask("top-k", { ...given, k: Math.min(RANKED, info.limits.size) });
    topKey = key;
    if (state.temperature === null) {
      setTemperature(firstTemperature(top.scores));
      remember();
    }
  }
  const [drawn, rest] = await Promise.all([ask("sample-without-replacement", drawsAsked()), askRest()]);
  answer = digest(top, drawn, rest);
  show();
}

// log Z and the entropy of all rows but the ranked, whose logits are known: only what is left has to be estimated.
async function askRest() {
  const left = info.n - state.excluded.length - top.ids.length;
  if (left <= 0) return { logZ: -Infinity, stderr: 0, entropy: 0, entropyError: 0, rows: 0, ms: 0 };
  const sum = { ...settings(), temperature: state.temperature, seed: state.seed, rel_err: REL_ERR };
  sum.exclude = [...(sum.exclude ?? []), ...top.ids];
  const [logZ, entropy] = await Promise.all([ask("log-partition", sum), ask("entropy", sum)]);
  return {
    logZ: logZ.value,
    stderr: logZ.stderr,
    entropy: entropy.value,
    entropyError: entropy.stderr,
    rows: logZ.rows + entropy.rows,
    ms: Math.max(logZ.ms, entropy.ms),
  };
}

function firstTemperature(scores) {
  const spread = scores[0] - scores[Math.min(HEAD, scores.length) - 1];
  const wanted = spread > 0 ? spread / DRAWN_TO : 1;
  return Number(Math.min(100, Math.max(0.001, wanted)).toPrecision(2));
}

function digest(top, drawn, rest) {
  const logits = top.scores.map((score) => score / state.temperature);
  const most = Math.max(logits[0], rest.logZ);
  const logZ = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), Math.exp(rest.logZ - most)));
  const logPs = logits.map((logit) => Math.min(0, logit - logZ));
  const left = Math.exp(rest.logZ - logZ); // the probability of what is not ranked
  const known = logPs.reduce((sum, logP) => sum - Math.exp(logP) * logP, 0);
  const entropy = known + (left > 0 ? left * (rest.entropy - Math.log(left)) : 0);
  const error = left * rest.stderr;
  const ranks = new Map(top.ids.map((id, i) => [id, i + 1]));
  const entry = (ids, names, i, logP) => {
    const rank = ranks.get(ids[i]) ?? null;
    const name = nameOf(names, ids, i);
    return { id: ids[i], name, logP, p: Math.exp(logP), error, rank, beyond: rank === null || rank > HEAD };
  };
  return {
    top,
    drawn,
    logZ,
    error,
    entropy,
    entropyError: left * rest.entropyError + Math.abs(rest.entropy - Math.log(left || 1)) * error,
    logPs,
    topRows: top.ids.slice(0, SHOWN).map((_, i) => entry(top.ids, top.names, i, logPs[i])),
    drawnRows: drawn.ids.map((_, i) => entry(drawn.ids, drawn.names, i, Math.min(0, drawn.logits[i] - logZ))),
    mass: Math.min(1, logPs.slice(0, HEAD).reduce((total, logP) => total + Math.exp(logP), 0)),
    rows: top.rows + drawn.rows + rest.rows,
    ms: Math.max(drawn.ms, rest.ms),
  };
}

// Showing

const WHY = {
  exact: () => "no approximation but rounding",
  bounded: (bound) => `a theorem allows these draws a total variation distance of ${power(bound, 1)}`,
  calibrated: () => "the mean error over thetas like those of a calibration was measured to meet a target",
  heuristic: () => "nothing is promised here; audit it",
};

function show(fresh = true) {
  const there = answer !== null && state.query !== "";
  $("answer").hidden = !there;
  $("empty").hidden = state.query !== "";
  chips($("excluded"), "left out:", state.excluded, include, "of-excluded");
  if (!there || !fresh) return;
  $("answer").classList.remove("stale");
  showFacts();
  showRows();
  showPlot();
  showTruth();
}

function showFacts() {
  const { entropy, entropyError, error, logZ, mass, drawn, rows, ms } = answer;
  const perplexity = Math.exp(entropy);
  document.title = `${state.query} · lazygumbel`;
  $("perplexity").textContent = short(Math.max(1, perplexity));
  $("perplexity-error").textContent = `${relative(entropyError)} of ${count(info.n - state.excluded.length)} rows`;
  $("log-z").textContent = logZ.toFixed(3);
  $("log-z-error").textContent = error ? `± ${short(error, 2)}` : "exact";
  $("mass").textContent = chance(mass);
  $("mass-error").textContent = mass < 0.9995 ? `${chance(1 - mass)} lies beyond` : "next to nothing lies beyond";
  $("label").textContent = drawn.label;
  $("label").className = `label ${drawn.label}`;
  $("why").textContent = WHY[drawn.label](drawn.bound);
  const share = rows / info.n;
  const part = share < 1 ? ` of ${count(info.n)} (${share >= 0.1 ? (100 * share).toFixed(0) : (100 * share).toPrecision(2)}%)` : "";
  $("work").textContent = `${count(rows)} rows read${part} in ${milliseconds(ms)}`;
}

function showRows() {
  const { topRows, drawnRows } = answer;
  const largest = Math.max(...topRows.map((row) => row.p), ...drawnRows.map((row) => row.p));
  const known = truth && new Map(truth.ids.map((id, i) => [id, { p: Math.exp(truth.log_prob[i]), rank: truth.rank[i] }]));
  const actions = { exclude, ask: (row) => choose(row.name) };
  fill($("top"), topRows, largest, known, actions);
  fill($("drawn"), drawnRows, largest, known, actions);
  const beyond = drawnRows.filter((row) => row.beyond).length;
  $("top-note").textContent = `${topRows.length} best`;
  $("drawn-note").textContent = beyond ? `${beyond} of ${drawnRows.length} beyond the top ${HEAD}` : `all among the top ${HEAD}`;
}

function showPlot() {
  const ranks = truth && new Map(truth.ids.map((id, i) => [id, truth.rank[i]]));
  const drawn = answer.drawnRows.map((row) => ({ ...row, rank: ranks?.get(row.id) ?? row.rank }));
  plot($("plot"), {
    n: info.n,
    curve: answer.logPs,
    exact: truth?.curve ?? null,
    drawn,
    head: Math.min(HEAD, info.n),
    mass: truth?.mass[HEAD] ?? answer.mass,
  });
}

function showTruth() {
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

function complain(message) {
  $("problem").hidden = message === null;
  $("problem").textContent = message ?? "";
  $("query").setAttribute("aria-invalid", String(message !== null));
}

function say(words) {
  $("said").textContent = words;
  clearTimeout(say.timer);
  say.timer = setTimeout(() => ($("said").textContent = ""), 2500);
}

// Doing

function choose(query) {
  if (!query) answer = null;
  if (query !== state.query) $("answer").classList.add("stale");
  state.query = query;
  $("query").value = query;
  show(query === "");
  complain(null);
  refresh();
}

function setTemperature(value) {
  state.temperature = value;
  $("temperature").value = String(Math.log10(value ?? 1));
  $("temperature-shown").textContent = value === null ? "auto" : short(value);
  $("temperature").setAttribute("aria-valuetext", $("temperature-shown").textContent);
}

function setSeed(value) {
  state.seed = value;
  $("seed").value = String(value);
}

function exclude(row) {
  if (state.excluded.some((other) => other.id === row.id) || state.excluded.length + 1 >= info.n) return;
  state.excluded.push({ id: row.id, name: row.name });
  refresh();
}

function include(row) {
  state.excluded = state.excluded.filter((other) => other.id !== row.id);
  chips($("excluded"), "left out:", state.excluded, include, "of-excluded");
  refresh();
}

async function audit() {
  if (!answer || $("audit").disabled) return;
  const asked = answer;
  const ids = [...new Set([...asked.topRows, ...asked.drawnRows].map((row) => row.id))];
  $("audit").disabled = true;
  say("reading every row …");
  try {
    const found = await ask("audit", { ...settings(), temperature: state.temperature, ids });
    if (asked === answer && !changed) {
      truth = found;
      show();
    }
    say("");
  } catch (error) {
    complain(error.message);
  } finally {
    $("audit").disabled = false;
  }
}

async function copied(text, what) {
  await copy(text);
  say(`copied as ${what}`);
}

// The address holds the state, so that it can be kept and sent.

function remember() {
  const held = new URLSearchParams();
  if (state.query) held.set("q", state.query);
  if (state.temperature !== null) held.set("t", String(state.temperature));
  if (state.seed) held.set("seed", String(state.seed));
  if (state.excluded.length) held.set("without", state.excluded.map((row) => row.id).join(","));
  history.replaceState(null, "", held.size ? `#${held}` : location.pathname);
}

async function recall() {
  const held = new URLSearchParams(location.hash.slice(1));
  const temperature = Number(held.get("t"));
  setTemperature(held.has("t") && temperature > 0 && Number.isFinite(temperature) ? temperature : null);
  const seed = Number(held.get("seed") ?? 0);
  setSeed(Number.isSafeInteger(seed) && seed >= 0 ? seed : 0);
  state.excluded = [];
  if (held.get("without")) {
    const rows = await get("/v1/rows", { ids: held.get("without") }).catch(() => null);
    if (rows) state.excluded = rows.ids.map((id, i) => ({ id, name: nameOf(rows.names, rows.ids, i) }));
  }
  choose(held.get("q") ?? "");
}

async function showExamples() {
  const ids = Array.from({ length: 40 }, (_, i) => Math.floor((0.0012 + 0.0004 * i) * info.n));
  const rows = await get("/v1/rows", { ids: [...new Set(ids)].join(",") });
  const all = rows.ids.map((id, i) => ({ name: nameOf(rows.names, rows.ids, i) }));
  const words = all.filter((row) => /^\p{L}{5,9}$/u.test(row.name)); // rather than numbers and signs
  const found = (words.length ? words : all).filter((_, i, held) => i % Math.ceil(held.length / 5) === 0);
  if (info.names) {
    const known = ["king", "man", "woman"].map((name) => get("/v1/rows", { name }));
    await Promise.all(known).then(() => found.push({ name: "king - man + woman" }), () => {});
  } else if (info.n > 2) {
    found.push({ name: "#0 + #1 - #2" });
  }
  chips($("examples"), "", found, (row) => choose(row.name), "");
}

function onKey(event) {
  if (event.target.matches("input, textarea") && event.target.type !== "range") return;
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const acts = {
    "/": () => ($("query").focus(), $("query").select()),
    r: () => drawAgain(),
    a: () => audit(),
    u: () => state.excluded.length && include(state.excluded.at(-1)),
    "[": () => slide(-0.1),
    "]": () => slide(0.1),
  };
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
}

function slide(by) {
  $("temperature").value = String(Number($("temperature").value) + by);
  $("temperature").dispatchEvent(new Event("input"));
}

function drawAgain() {
  setSeed(state.seed + 1);
  refresh();
}

function wire() {
  const field = new QueryField($("query"), $("options"), choose);
  field.named = info.names;
  $("ask").addEventListener("submit", (event) => event.preventDefault());
  $("temperature").addEventListener("input", (event) => {
    setTemperature(Number((10 ** Number(event.target.value)).toPrecision(3)));
    refresh();
  });
  $("seed").addEventListener("change", (event) => {
    const seed = Number(event.target.value);
    setSeed(Number.isSafeInteger(seed) && seed >= 0 ? seed : 0);
    refresh();
  });
  $("again").addEventListener("click", drawAgain);
  $("audit").addEventListener("click", audit);
  $("curl").addEventListener("click", () => copied(curl(drawsAsked()), "curl"));
  $("python").addEventListener("click", () => copied(asPython(drawsAsked()), "Python"));
  document.addEventListener("keydown", onKey);
  window.addEventListener("hashchange", recall);
  new ResizeObserver(() => answer && !$("answer").hidden && showPlot()).observe($("plot"));
}

function chooseTheme() {
  const kept = localStorage.getItem("theme");
  if (kept) document.documentElement.dataset.theme = kept;
  $("theme").addEventListener("click", () => {
    const dark = getComputedStyle(document.documentElement).colorScheme === "dark";
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("theme", dark ? "light" : "dark");
  });
}

async function start() {
  chooseTheme();
  try {
    info = await get("/v1/info");
  } catch (error) {
    return complain(error.message);
  }
  $("facts").textContent = `${count(info.n)} rows of ${count(info.d)} numbers · ${info.index}`;
  if (!info.names) $("query").placeholder = "the id of a row, or a sum: #1 + #2 - #3";
  $("links").hidden = hasToken(); // a plain link bears none
  wire();
  showExamples().catch(() => {});
  await recall();
}

start();
