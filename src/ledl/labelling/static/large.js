// One image as large as the page allows, and which labelled images count most for its label.

import { get, Refused } from "/static/api.js";
import { $, el, percent } from "/static/dom.js";
import { sharpen } from "/static/grid.js";

export class Large {
  #id = null;
  #asked = ""; // what the explanation that is shown, or under way, is for

  constructor(classes, close) {
    this.classes = classes;
    this.box = $("large");
    this.picture = el("img", { alt: "", on: { load: sharpen } });
    this.title = el("h2");
    this.state = el("p", { class: "state", "aria-live": "polite" });
    this.why = el("div");
    const button = el("button", { type: "button", class: "close", "aria-label": "Close", title: "Close (Esc)", text: "×", on: { click: close } });
    this.box.append(el("figure", {}, this.picture), el("div", { class: "why" }, button, this.title, this.state, this.why));
  }

  get open() {
    return !this.box.hidden;
  }

  close() {
    this.box.hidden = true;
    this.#id = null;
    this.#asked = "";
    this.picture.removeAttribute("src");
  }

  /** Show an image; `words` say its label, `model` is the number of the model that explains it. */
  show(image, words, model) {
    this.box.hidden = false;
    if (image.id !== this.#id) {
      this.#id = image.id;
      this.picture.src = `/image/${image.id}`;
      this.picture.alt = image.name;
      this.why.replaceChildren();
    }
    this.title.replaceChildren(el("bdi", { text: image.name }));
    this.state.replaceChildren(words);
    const wanted = `${image.id} ${model}`;
    if (wanted !== this.#asked && model != null) this.#explain(image.id, wanted);
    this.#asked = wanted;
  }

  async #explain(id, wanted) {
    let answer;
    try {
      answer = await get(`/api/explain/${id}`);
    } catch (error) {
      if (this.#asked === wanted && error instanceof Refused) this.why.replaceChildren(el("p", { class: "soft", text: error.message }));
      return;
    }
    if (this.#asked !== wanted) return; // another image is shown by now
    const bars = answer.ranking.map((one) => this.#bar(one));
    const because = answer.because.map((one) => this.#reason(one));
    this.why.replaceChildren(
      el("h3", { text: "What the model thinks" }), el("ul", { class: "bars" }, ...bars),
      el("p", { class: "soft", text: answer.text }),
      ...(because.length ? [el("h3", { text: "Labelled images that count most" }), el("ul", { class: "because" }, ...because)] : []),
    );
  }

  #bar(one) {
    const bar = el("i");
    bar.style.width = `${100 * one.probability}%`;
    return el("li", {}, el("bdi", { text: this.classes.nameOf(one.class) }), el("span", { class: "track" }, bar), el("span", { class: "number", text: percent(one.probability) }));
  }

  #reason(one) {
    const name = this.classes.nameOf(one.class);
    return el("li", { title: one.image.name }, el("img", { src: `/thumb/${one.image.id}`, alt: one.image.name, on: { load: sharpen } }), el("bdi", { text: name }), el("span", { class: "soft", text: percent(one.share) }));
  }
}
