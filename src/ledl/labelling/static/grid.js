// A grid of which only the visible part is in the page, with a cursor and a selection.

import { el } from "/static/dom.js";

const GAP = 10; // pixels between images
const EDGE = 16; // pixels around them
const CAPTION = 38; // pixels, as in label.css
const MORE = 2; // rows above and below what is visible
const SETTLE = 60; // milliseconds: thumbnails of tiles that only rush by are not asked for
const TINY = 32; // pixels; smaller pictures are shown with sharp pixels

export class Grid {
  ids = [];
  cursor = 0;
  #anchor = 0;
  #selected = new Set();
  #tiles = new Map(); // the tiles in the page, by id
  #size = 128;
  #timer = null;

  /** `on` has: draw(tile, id), need(ids), open(), moved(), scrolled(). */
  constructor(box, sheet, on) {
    Object.assign(this, { box, sheet, on });
    box.addEventListener("scroll", () => requestAnimationFrame(() => this.#layout()), { passive: true });
    new ResizeObserver(() => this.#layout()).observe(box);
    sheet.addEventListener("mousedown", (event) => this.#click(event));
    sheet.addEventListener("dblclick", () => on.open());
  }

  /** Show other images. The cursor goes to `id`, or stays on its image if that is there, or begins. */
  set(ids, id = this.current) {
    this.ids = ids;
    this.#selected = new Set(ids.filter((kept) => this.#selected.has(kept)));
    this.cursor = this.#anchor = Math.max(0, ids.indexOf(id));
    this.#layout();
    this.on.moved();
  }

  get current() {
    return this.ids[this.cursor];
  }

  /** What a key is for: the selected images, or else the one with the cursor. */
  get targets() {
    if (this.#selected.size > 1) return this.ids.filter((id) => this.#selected.has(id));
    return this.current === undefined ? [] : [this.current];
  }

  get several() {
    return this.#selected.size > 1;
  }

  set size(size) {
    this.#size = size;
    this.#layout();
    this.#reveal();
  }

  get #measures() {
    const inside = this.box.clientWidth - 2 * EDGE;
    const columns = Math.max(1, Math.floor((inside + GAP) / (this.#size + GAP)));
    const width = Math.floor((inside - GAP * (columns - 1)) / columns);
    const side = Math.min(width, Math.round(this.#size * 1.25)); // a few images do not fill the page
    return { columns, width: side, step: side + GAP, row: side + CAPTION + GAP };
  }

  /** Images that are in the page, and those of them that are wholly visible. */
  get shown() {
    return [...this.#tiles.keys()];
  }

  get whole() {
    const { columns, row } = this.#measures;
    const first = Math.ceil((this.box.scrollTop - GAP) / row), last = Math.floor((this.box.scrollTop + this.box.clientHeight) / row);
    return this.ids.slice(Math.max(0, first) * columns, Math.max(first + 1, last) * columns);
  }

  move(key, extend) {
    const { columns, row } = this.#measures;
    const page = columns * Math.max(1, Math.floor(this.box.clientHeight / row) - 1);
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns, PageUp: -page, PageDown: page, Home: -this.ids.length, End: this.ids.length };
    let to = this.cursor + steps[key];
    if (key === "ArrowUp" && to < 0) to = this.cursor;
    if (key === "ArrowDown" && to >= this.ids.length) {
      const last = this.ids.length - 1;
      to = Math.floor(last / columns) > Math.floor(this.cursor / columns) ? last : this.cursor;
    }
    this.goTo(Math.min(Math.max(to, 0), this.ids.length - 1), extend);
  }

  goTo(index, extend = false) {
    if (!this.ids.length) return;
    this.cursor = index;
    if (extend) this.#selectRange();
    else {
      this.#anchor = index;
      this.#selected.clear();
    }
    this.#reveal();
    this.redraw();
    this.on.moved();
  }

  selectAll() {
    this.#selected = new Set(this.ids);
    this.redraw();
    this.on.moved();
  }

  #selectRange() {
    const [low, high] = [this.#anchor, this.cursor].sort((a, b) => a - b);
    this.#selected = new Set(this.ids.slice(low, high + 1));
  }

  #click(event) {
    const tile = event.target.closest(".tile");
    if (!tile || event.button) return;
    event.preventDefault();
    this.box.focus({ preventScroll: true });
    const index = this.ids.indexOf(Number(tile.dataset.id));
    if (!(event.ctrlKey || event.metaKey)) return this.goTo(index, event.shiftKey);
    const id = this.ids[index];
    if (!this.#selected.size && this.current !== undefined) this.#selected.add(this.current);
    if (!this.#selected.delete(id)) this.#selected.add(id);
    this.cursor = this.#anchor = index;
    this.redraw();
    this.on.moved();
  }

  #reveal() {
    const { columns, row } = this.#measures;
    const top = Math.floor(this.cursor / columns) * row, bottom = top + row + GAP;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    else if (bottom > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = bottom - this.box.clientHeight;
    this.#layout();
  }

  #layout() {
    if (!this.box.clientWidth) return; // hidden
    const { columns, width, step, row } = this.#measures;
    const rows = Math.ceil(this.ids.length / columns);
    this.sheet.style.height = `${rows * row + GAP}px`;
    const first = Math.max(0, Math.floor(this.box.scrollTop / row) - MORE);
    const last = Math.ceil((this.box.scrollTop + this.box.clientHeight) / row) + MORE;
    const there = new Map();
    for (let index = first * columns; index < Math.min(last * columns, this.ids.length); index++) there.set(this.ids[index], index);
    for (const [id, tile] of this.#tiles) {
      if (there.has(id)) continue;
      tile.querySelector("img").removeAttribute("src"); // ends a request that is under way
      tile.remove();
      this.#tiles.delete(id);
    }
    for (const [id, index] of there) {
      const tile = this.#tiles.get(id) ?? this.#add(id);
      tile.style.transform = `translate(${EDGE + (index % columns) * step}px, ${GAP + Math.floor(index / columns) * row}px)`;
      tile.style.width = `${width}px`;
      tile.setAttribute("aria-posinset", index + 1);
      tile.setAttribute("aria-setsize", this.ids.length);
    }
    this.redraw();
    this.on.need([...there.keys()]);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#load(), SETTLE);
    this.on.scrolled();
  }

  #add(id) {
    const picture = el("img", { alt: "", decoding: "async", draggable: "false", on: { load: sharpen } });
    const tile = el("div", { class: "tile", role: "option", id: `tile-${id}`, "data-id": id }, el("div", { class: "picture" }, picture), el("div", { class: "caption" }));
    this.sheet.append(tile);
    this.#tiles.set(id, tile);
    return tile;
  }

  #load() {
    for (const [id, tile] of this.#tiles) {
      const picture = tile.querySelector("img");
      if (!picture.hasAttribute("src")) picture.src = `/thumb/${id}`;
    }
  }

  /** Draw the tiles that are in the page anew. */
  redraw() {
    for (const [id, tile] of this.#tiles) {
      const here = id === this.current;
      tile.classList.toggle("current", here);
      tile.setAttribute("aria-selected", this.several ? this.#selected.has(id) : here);
      tile.classList.toggle("selected", this.several && this.#selected.has(id));
      this.on.draw(tile, id);
    }
    if (this.#tiles.has(this.current)) this.box.setAttribute("aria-activedescendant", `tile-${this.current}`);
    else this.box.removeAttribute("aria-activedescendant");
  }
}

export function sharpen(event) {
  event.target.classList.toggle("tiny", Math.max(event.target.naturalWidth, event.target.naturalHeight) < TINY);
}
