// Rows with their probabilities: the most probable, and those drawn.

import { chance, count, relative } from "./format.js";

export const SHOWN = 20;
const OFF = 4; // standard errors between an estimate and the truth that ask for a look

const make = (kind, name, text) => {
  const element = document.createElement(kind);
  element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};

// One entry: {id, name, p, error, beyond}; `error` is relative. `truth` maps ids to {p, rank}.
function row(entry, place, largest, truth, actions) {
  const item = make("li", entry.beyond ? "tail" : "");
  item.dataset.id = entry.id;
  const bar = make("span", "bar");
  bar.style.backgroundSize = `${largest > 0 ? (100 * entry.p) / largest : 0}% 100%`;
  const named = make("span", "named");
  const name = make("button", "name", entry.name);
  name.type = "button";
  name.title = `Ask for ${entry.name}`;
  name.addEventListener("click", () => actions.ask(entry));
  named.append(name);
  if (entry.beyond) {
    const beyond = make("span", "beyond", truth?.get(entry.id)?.rank ? `rank ${count(truth.get(entry.id).rank)}` : "beyond 100");
    beyond.title = "Not among the 100 most probable rows: only sampling reaches it";
    named.append(beyond);
  }
  const probability = make("span", "chance", chance(entry.p));
  probability.append(" ", make("small", "", relative(entry.error)));
  const known = truth?.get(entry.id);
  if (known) {
    const far = Math.abs(Math.log(entry.p / known.p)) > OFF * entry.error + 1e-4;
    probability.append(make("span", far ? "true off" : "true", `${chance(known.p)} true`));
  }
  const leave = make("button", "leave", "×");
  leave.type = "button";
  leave.title = `Leave out ${entry.name}`;
  leave.setAttribute("aria-label", `Leave out ${entry.name}`);
  leave.addEventListener("click", () => actions.exclude(entry));
  item.append(bar, make("span", "number", count(place)), named, probability, leave);
  return item;
}

export function fill(list, entries, largest, truth, actions) {
  list.replaceChildren(...entries.map((entry, i) => row(entry, i + 1, largest, truth, actions)));
}

export function chips(element, words, entries, onClick, className) {
  element.hidden = entries.length === 0;
  element.className = `chips ${className}`;
  const buttons = entries.map((entry) => {
    const button = make("button", "", entry.name);
    button.type = "button";
    button.addEventListener("click", () => onClick(entry));
    return button;
  });
  element.replaceChildren(...(words ? [make("span", "", words)] : []), ...buttons);
}
