// The classes: a button each, with its keys, its count and examples; and the field that finds or makes one.

import { $, count, el, images, quoted, write } from "/static/dom.js";
import { sharpen } from "/static/grid.js";
import { giveKeys } from "/static/keys.js";

const EXAMPLES = 3;
const fold = (name) => name.trim().toLowerCase();

export class Classes {
  all = [];
  keys = {};
  #byKey = new Map();
  #rows = new Map();
  #place = 0; // of the match that Enter takes

  /** `on` has: label(class), create(name), edit(class), left(): the field was left. */
  constructor(on) {
    this.on = on;
    this.field = $("name");
    this.field.addEventListener("input", () => this.#filter());
    this.field.addEventListener("keydown", (event) => this.#key(event));
    this.field.addEventListener("blur", () => this.#empty());
    $("naming").addEventListener("submit", (event) => event.preventDefault());
  }

  show(folder, classes) {
    const name = `ledl-keys:${folder}`;
    this.all = classes;
    this.keys = giveKeys(classes, JSON.parse(localStorage.getItem(name) ?? "{}"));
    localStorage.setItem(name, JSON.stringify(this.keys));
    this.#byKey = new Map();
    for (const one of classes) {
      for (const key of [this.keys[one.id].digit, this.keys[one.id].letter]) if (key) this.#byKey.set(key, one);
    }
    $("classes").classList.toggle("two", Object.values(this.keys).some(({ digit, letter }) => digit && letter));
    const rows = new Map(classes.map((one) => [one.id, this.#rows.get(one.id) ?? this.#row(one.id)]));
    for (const [id, row] of this.#rows) if (!rows.has(id)) row.remove();
    this.#rows = rows;
    [...rows.values()].forEach((row, place) => {
      if ($("classes").children[place] !== row) $("classes").insertBefore(row, $("classes").children[place] ?? null);
    });
    for (const one of classes) this.#fill(rows.get(one.id), one);
    this.#filter();
  }

  find(id) {
    return this.all.find((one) => one.id === id);
  }

  /** The name of a label: of a class, or of one that the server has not stored yet. */
  nameOf(label) {
    return typeof label === "string" ? label : (this.find(label)?.name ?? "");
  }

  ofKey(key) {
    return this.#byKey.get(key.toLowerCase());
  }

  /** Go to the field, beginning with a letter. */
  type(text = "") {
    this.field.value = text;
    this.field.focus();
    this.#filter();
  }

  /** Mark the class that the image with the cursor has, or would get. */
  mark(label, suggestion) {
    for (const [id, row] of this.#rows) {
      row.classList.toggle("has", id === label);
      row.classList.toggle("likely", id === suggestion);
    }
  }

  #row(id) {
    const label = el("button", { type: "button", class: "class", on: { click: () => this.on.label(this.find(id)) } },
      el("span", { class: "keys" }), el("bdi", { class: "name" }), el("span", { class: "examples" }), el("span", { class: "count" }));
    const more = el("button", { type: "button", class: "more", title: "Rename, merge, delete", text: "⋯", on: { click: () => this.on.edit(this.find(id)) } });
    return el("li", {}, label, more);
  }

  #fill(row, one) {
    const [label, more] = row.children;
    const [keys, name, examples, number] = label.children;
    const caps = [this.keys[one.id].digit, this.keys[one.id].letter].filter(Boolean);
    keys.replaceChildren(...caps.map((key) => el("kbd", { text: key })));
    write(name, one.name);
    write(number, count(one.count));
    label.title = `\u2068${one.name}\u2069: ${images(one.count)} labelled, ${count(one.n_suggested)} suggested`;
    label.setAttribute("aria-label", `${one.name}, ${images(one.count)}${caps.length ? `, key ${caps.join(" or ")}` : ""}`);
    more.setAttribute("aria-label", `Rename, merge or delete ${one.name}`);
    const wanted = one.examples.slice(0, EXAMPLES);
    if (examples.dataset.ids === wanted.join()) return;
    examples.dataset.ids = wanted.join();
    examples.replaceChildren(...wanted.map((id) => el("img", { src: `/thumb/${id}`, alt: "", loading: "lazy", on: { load: sharpen } })));
  }

  get #matches() {
    const text = fold(this.field.value);
    const hits = this.all.filter((one) => fold(one.name).includes(text));
    const rank = (one) => (fold(one.name) === text ? 0 : fold(one.name).startsWith(text) ? 1 : 2);
    return text ? hits.sort((a, b) => rank(a) - rank(b)) : [];
  }

  #filter() {
    const text = this.field.value.trim(), matches = this.#matches;
    this.#place = Math.min(this.#place, Math.max(0, matches.length - 1));
    for (const one of this.all) {
      const row = this.#rows.get(one.id);
      row.hidden = Boolean(text) && !matches.includes(one);
      row.classList.toggle("first", Boolean(text) && matches[this.#place] === one);
    }
    let hint = "";
    if (text && !matches.length) hint = `Enter makes the class ${quoted(text)}.`;
    else if (text && fold(matches[0].name) === fold(text)) hint = `Enter labels ${quoted(matches[this.#place].name)}.`;
    else if (text) hint = `Enter labels ${quoted(matches[this.#place].name)}. Shift+Enter makes ${quoted(text)}.`;
    write($("hint"), hint);
  }

  #key(event) {
    if (event.isComposing) return;
    const name = this.field.value.trim(), matches = this.#matches;
    if (event.key === "Escape") this.field.blur(), this.on.left();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      this.#place = Math.max(0, this.#place + (event.key === "ArrowDown" ? 1 : -1));
      this.#filter();
      event.preventDefault();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (!name) return;
      const known = matches[event.shiftKey && fold(matches[0]?.name ?? "") !== fold(name) ? -1 : this.#place];
      this.field.blur();
      this.on.left();
      if (known) this.on.label(known);
      else this.on.create(name);
    }
  }

  #empty() {
    this.field.value = "";
    this.#place = 0;
    this.#filter();
  }
}
