// Sheets over the page: help, export, changes of a class, how good it is.

import { post } from "/static/api.js";
import { $, count, el, images, quoted } from "/static/dom.js";
import { accuracyWords, chart, forecastWords } from "/static/head.js";

const KEYS = [
  ["Label", [
    ["1 … 9, letters", "label the image, or the selected images, with the class that shows this key"],
    ["Enter", "accept the suggestion; in Check, confirm all images that are ticked"],
    ["−", "cannot say: no label, and it is not asked again"],
    ["Delete", "take the label away"],
    ["Backspace", "undo; Ctrl+Z does the same"],
    ["Shift Backspace", "redo; Ctrl+Y does the same"],
    ["+", "name a class: type to find one or to make a new one. A letter that is no key does that, too"],
    ["Shift Enter", "in Doubtful, keep the label; in Check, accept the selected images only"],
  ]],
  ["Move", [
    ["← ↑ ↓ →", "move; Home, End, Page Up and Page Down jump"],
    ["Shift ← ↑ ↓ →", "select a range; a click with Shift or Ctrl, too"],
    ["Ctrl A", "select all images of this view; Escape selects one again"],
    ["Space", "look closer, with the reasons; again to go back"],
  ]],
  ["Views", [
    ["Shift A", "Ask me: the images that teach most, ten at a time"],
    ["Shift C", "Check: suggestions of one class, the surest first; , and . change the class"],
    ["Shift D", "Doubtful: given labels that the model contradicts"],
    ["Shift L", "All images, with filter and search (/)"],
    ["?", "this sheet"],
  ]],
];

function openSheet(title, ...children) {
  const box = $("sheetbox");
  const close = el("button", { type: "button", class: "close", "aria-label": "Close", text: "×", on: { click: () => box.close() } });
  box.replaceChildren(el("h2", { id: "sheettitle", text: title }), close, ...children);
  if (!box.open) box.showModal();
}

export function help() {
  const parts = KEYS.map(([title, rows]) => el("section", {}, el("h3", { text: title }), el("dl", {}, ...rows.flatMap(([keys, words]) => [
    el("dt", {}, ...keys.split(" ").map((key) => (key === "…" || key.endsWith(",") || key === "letters" ? key : el("kbd", { text: key }))).flatMap((key) => [key, " "])),
    el("dd", { text: words }),
  ]))));
  openSheet("Keys", el("div", { class: "keysheet" }, ...parts), el("p", { class: "soft", text: "An answer is on disk before its mark turns from a ring into a tick. Your images are never changed or moved." }));
}

/** Write a path so that a shell reads it as one word. */
const shell = (path) => (/^[\w./~-]+$/.test(path) ? path : `'${path.replaceAll("'", `'\\''`)}'`);

function command(text) {
  const copy = el("button", { type: "button", text: "Copy", "aria-label": `Copy ${text}`, on: { click: async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      copy.textContent = "Select it by hand";
    }
  } } });
  return el("div", { class: "command" }, el("code", { text }), copy);
}

export function exportSheet({ folder, store }) {
  const words = `ledl label ${shell(folder)}${store ? ` --store ${shell(store)}` : ""}`;
  openSheet("Export",
    el("p", {}, el("a", { class: "button", href: "/api/export/labels.csv", download: "labels.csv", text: "Download labels.csv" }), " ", el("a", { class: "button", href: "/api/export/summary.html", download: "summary.html", text: "Download summary.html" })),
    el("p", { class: "soft", text: "The table has every image, its label or the suggestion with its probability, and who said so. The summary is one page to send to others." }),
    el("h3", { text: "Sorted folders" }), el("p", { class: "soft", text: "Copies of the images, a folder for each class. Type this in a terminal:" }), command(`${words} --export sorted/`),
    el("h3", { text: "A model" }), el("p", { class: "soft", text: "For ledl predict, on images that it has never seen:" }), command(`${words} --export model.ledl`));
}

export function progressSheet(state) {
  const parts = [];
  if (state.estimate) parts.push(el("p", { text: accuracyWords(state.estimate) }));
  if (state.forecast) parts.push(el("p", { text: forecastWords(state) }));
  if (state.curve.length > 1) parts.push(chart(state.curve, 520, 220, true));
  parts.push(el("p", { class: "soft", text: "Some questions are drawn at random, more of them at the beginning. Only these checks tell how good the suggestions for the other images are; the band holds the truth nine times in ten." }));
  if (state.unreadable.length) {
    parts.push(el("h3", { text: `${images(state.unreadable.length)} cannot be read` }), el("ul", { class: "unreadable" }, ...state.unreadable.map(([name, reason]) => el("li", {}, el("bdi", { text: name }), el("span", { class: "soft", text: ` ${reason}` })))));
  }
  openSheet("How good is it?", ...parts);
}

/** Rename, merge or delete a class. `done` is called with words and the answer of the server. */
export function editSheet(one, all, done) {
  const trouble = el("p", { class: "trouble", role: "alert" });
  const run = (path, body, words) => async (event) => {
    event.preventDefault();
    const button = event.submitter;
    button.disabled = true; // a second Enter, before the answer is here, does nothing
    try {
      const answer = await post(`/api/classes/${one.id}${path}`, body());
      $("sheetbox").close();
      done(words(), answer);
    } catch (error) {
      trouble.textContent = error.message;
      button.disabled = false;
    }
  };
  const name = el("input", { type: "text", value: one.name, "aria-label": "New name", maxlength: 255, spellcheck: "false", autocomplete: "off" });
  const into = el("select", { "aria-label": "Merge into" }, ...all.filter((other) => other.id !== one.id).map((other) => el("option", { value: other.id, text: other.name })));
  const other = () => all.find((candidate) => candidate.id === Number(into.value));
  const rename = el("form", { on: { submit: run("", () => ({ name: name.value.trim() }), () => `Renamed ${quoted(one.name)} to ${quoted(name.value.trim())}.`) } }, name, el("button", { text: "Rename" }));
  const merge = el("form", { on: { submit: run("/merge", () => ({ into: Number(into.value) }), () => `Merged ${quoted(one.name)} into ${quoted(other().name)}.`) } }, into, el("button", { text: "Merge" }));
  const remove = el("form", { on: { submit: run("/delete", () => ({}), () => `Deleted ${quoted(one.name)}.`) } }, el("button", { text: "Delete", disabled: one.count > 0 }), el("span", { class: "soft", text: one.count ? `It has ${count(one.count)} labels: merge it into another class instead.` : "It has no labels." }));
  openSheet("Change a class", el("p", { class: "lead" }, el("bdi", { text: one.name }), el("span", { class: "soft", text: ` ${images(one.count)}` })), trouble,
    el("h3", { text: "Rename" }), rename, ...(all.length > 1 ? [el("h3", { text: "Merge into" }), merge] : []), el("h3", { text: "Delete" }), remove);
  name.select();
}
