// The state of the page, and what follows from it.

import { NOTHING, askRest, digest, firstTemperature, nameOf, negligible } from "./answer.js";
import { ask, get, hasToken } from "./api.js";
import { asPython, copy, curl } from "./code.js";
import { count, short } from "./format.js";
import { SHOWN, chips } from "./lists.js";
import { QueryField } from "./query.js";
import { $, showFacts, showPlot, showRows, showTruth } from "./show.js";

const RANKED = 1000; // rows of the curve

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

// Asking: one round at a time; whatever changed meanwhile is asked for in the next.

async function refresh() {
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
  const { temperature, seed } = state;
  const left = info.n - state.excluded.length - top.ids.length;
  const [drawn, rest] = await Promise.all([
    ask("sample-without-replacement", drawsAsked()),
    left > 0 ? (negligible(top, left, temperature) ?? askRest({ ...given, temperature, seed }, top.ids)) : NOTHING,
  ]);
  answer = digest(top, drawn, rest, temperature);
  truth = null; // it was of the answer before
  show();
}

// Showing

function show(fresh = true) {
  const there = answer !== null && state.query !== "";
  $("answer").hidden = !there;
  $("empty").hidden = state.query !== "";
  chips($("excluded"), "left out:", state.excluded, include, "of-excluded");
  if (!there || !fresh) return;
  $("answer").classList.remove("stale");
  document.title = `${state.query} · lazygumbel`;
  showFacts(answer, info.n, info.n - state.excluded.length);
  showRows(answer, truth, { exclude, ask: (row) => choose(row.name) });
  showPlot(answer, truth, info.n);
  showTruth(answer, truth);
}

function complain(message) {
  $("problem").hidden = message === null;
  $("problem").textContent = message ?? "";
  $("empty").hidden = state.query !== "" && (answer !== null || message === null);
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
  const some = { theta: Array(info.d).fill(0), size: 40, seed: 1 }; // where some of these rows were removed
  const rows = await get("/v1/rows", { ids: [...new Set(ids)].join(",") }).catch(() => ask("sample", some));
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
  new ResizeObserver(() => answer && !$("answer").hidden && showPlot(answer, truth, info.n)).observe($("plot"));
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
  $("facts").textContent = `${count(info.n)} rows × ${count(info.d)} · ${info.index}`;
  if (!info.names) $("query").placeholder = "an id, or #1 + #2 - #3";
  $("links").hidden = hasToken(); // a plain link bears none
  wire();
  showExamples().catch(() => {});
  await recall();
}

start();
