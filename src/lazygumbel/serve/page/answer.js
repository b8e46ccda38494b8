// What the page shows, from what the service answers.

import { ask } from "./api.js";
import { SHOWN } from "./lists.js";

export const HEAD = 100; // rows that "the top 100" speaks of
const REL_ERR = 0.003;
const NEGLIGIBLE = Math.log(1e-12);
const SPREAD = 5.5; // the first temperature: so many logits between the first row and the hundredth

export const nameOf = (names, ids, i) => names?.[i] ?? `#${ids[i]}`;

export function firstTemperature(scores) {
  const spread = scores[0] - scores[Math.min(HEAD, scores.length) - 1];
  const wanted = spread > 0 ? spread / SPREAD : 1;
  return Number(Math.min(100, Math.max(0.001, wanted)).toPrecision(2));
}

export const NOTHING = { logZ: -Infinity, stderr: 0, entropy: 0, entropyError: 0, rows: 0, ms: 0 };

// As cold as this nothing is left to estimate: even if all other rows were as probable as the last that is ranked.
export function negligible(top, left, temperature) {
  const first = top.scores[0] / temperature;
  const logZ = Math.log(left) + top.scores.at(-1) / temperature;
  return logZ - first < NEGLIGIBLE ? { ...NOTHING, logZ, stderr: 1, entropyError: 1 } : null;
}

// log Z and the entropy of all rows but the ranked, whose logits are known: only what is left has to be estimated.
export async function askRest(given, ranked) {
  const sum = { ...given, rel_err: REL_ERR, exclude: [...(given.exclude ?? []), ...ranked] };
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

// Probabilities of the ranked and of the drawn rows, log Z, entropy and the errors that come with the rest.
export function digest(top, drawn, rest, temperature) {
  const logits = top.scores.map((score) => score / temperature);
  const most = Math.max(logits[0], rest.logZ);
  const logZ = most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), Math.exp(rest.logZ - most)));
  const logPs = logits.map((logit) => Math.min(0, logit - logZ));
  const left = Math.exp(rest.logZ - logZ); // the probability of what is not ranked
  const surprise = left > 0 ? rest.entropy - Math.log(left) : 0;
  const error = left * rest.stderr;
  const ranks = new Map(top.ids.map((id, i) => [id, i + 1]));
  const entry = (ids, names, i, logP) => {
    const rank = ranks.get(ids[i]) ?? null;
    const beyond = rank === null || rank > HEAD;
    return { id: ids[i], name: nameOf(names, ids, i), logP, p: Math.exp(logP), error, rank, beyond };
  };
  return {
    drawn,
    logZ,
    error,
    entropy: logPs.reduce((sum, logP) => sum - Math.exp(logP) * logP, left * surprise),
    entropyError: left * rest.entropyError + Math.abs(surprise) * error,
    logPs,
    topRows: top.ids.slice(0, SHOWN).map((_, i) => entry(top.ids, top.names, i, logPs[i])),
    drawnRows: drawn.ids.map((_, i) => entry(drawn.ids, drawn.names, i, Math.min(0, drawn.logits[i] - logZ))),
    mass: Math.min(1, logPs.slice(0, HEAD).reduce((total, logP) => total + Math.exp(logP), 0)),
    rows: top.rows + drawn.rows + rest.rows,
    ms: Math.max(drawn.ms, rest.ms),
  };
}
