// The field of the query: completes the last term of a sum of names.

import { get } from "./api.js";
import { count } from "./format.js";

const LAST_TERM = /(?:^|\s[+-]\s+)([^\s].*)$/;

export class QueryField {
  constructor(input, list, onChosen) {
    this.input = input;
    this.list = list;
    this.onChosen = onChosen;
    this.chosen = -1;
    this.asked = 0;
    input.addEventListener("input", () => this.complete());
    input.addEventListener("keydown", (event) => this.onKey(event));
    input.addEventListener("blur", () => setTimeout(() => document.activeElement === input || this.close(), 120));
    list.addEventListener("pointerdown", (event) => {
      const item = event.target.closest("li");
      if (!item) return;
      event.preventDefault();
      this.take(item.dataset.name);
      this.submit();
    });
  }

  term() {
    const text = this.input.value;
    const found = LAST_TERM.exec(text);
    if (!found) return null;
    const parts = found[1].split(/\s[+-]\s+/);
    return parts[parts.length - 1];
  }

  async complete() {
    const number = ++this.asked;
    const term = this.term();
    if (!this.named || !term || term.startsWith("#")) return this.close();
    let found;
    try {
      found = await get("/v1/rows", { prefix: term, limit: 8 });
    } catch {
      return this.close();
    }
    if (number !== this.asked || document.activeElement !== this.input) return;
    this.show(found);
  }

  show({ ids, names }) {
    this.chosen = -1;
    this.list.replaceChildren(
      ...names.map((name, i) => {
        const item = document.createElement("li");
        item.id = `option-${i}`;
        item.role = "option";
        item.dataset.name = name;
        const [word, id] = [document.createElement("span"), document.createElement("span")];
        word.textContent = name;
        id.textContent = `#${count(ids[i])}`;
        item.append(word, id);
        return item;
      }),
    );
    this.list.hidden = names.length === 0;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this.mark();
  }

  close() {
    this.asked++;
    this.list.hidden = true;
    this.chosen = -1;
    this.input.setAttribute("aria-expanded", "false");
    this.input.removeAttribute("aria-activedescendant");
  }

  mark() {
    [...this.list.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === this.chosen)));
    if (this.chosen < 0) return this.input.removeAttribute("aria-activedescendant");
    this.input.setAttribute("aria-activedescendant", `option-${this.chosen}`);
    this.list.children[this.chosen].scrollIntoView({ block: "nearest" });
  }

  take(name) {
    const text = this.input.value;
    const term = this.term() ?? "";
    this.input.value = text.slice(0, text.length - term.length) + name;
    this.close();
  }

  submit() {
    this.close();
    this.onChosen(this.input.value.trim());
  }

  onKey(event) {
    const open = !this.list.hidden;
    const length = this.list.children.length;
    if (event.key === "ArrowDown" && open) this.chosen = (this.chosen + 1) % length;
    else if (event.key === "ArrowUp" && open) this.chosen = this.chosen <= 0 ? length - 1 : this.chosen - 1;
    else if (event.key === "Escape") return open ? this.close() : this.input.blur();
    else if ((event.key === "Enter" || (event.key === "Tab" && open)) && this.chosen >= 0) {
      event.preventDefault();
      this.take(this.list.children[this.chosen].dataset.name);
      if (event.key === "Enter") this.submit();
      return;
    } else if (event.key === "Enter") {
      event.preventDefault();
      return this.submit();
    } else return;
    event.preventDefault();
    this.mark();
  }
}
