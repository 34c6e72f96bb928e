// What the person did and the server has not stored yet. It is sent in order, one request at a time, and kept
// over a reload of the page. The page shows what the server knows with the outbox laid over it, so that an
// answer is seen at once, and is taken back by leaving the outbox.

import { Gone, Locked, post } from "/static/api.js";

const PAUSE = 1000; // milliseconds between two tries

export class Outbox {
  #sending = null; // the promise of the run that sends
  #timer = null;

  /** `on` has: stored(request, answer), refused(request, error), gone(error), back(). */
  constructor(name, on) {
    this.name = `ledl-outbox:${name}`;
    this.on = on;
    this.requests = JSON.parse(sessionStorage.getItem(this.name) ?? "[]");
    this.broken = false;
    this.send();
  }

  add(path, body) {
    this.requests.push({ path, body: { ...body, key: crypto.randomUUID() } });
    this.#keep();
    this.send();
  }

  /** Take the last request out again if it has not been sent. */
  takeBack() {
    if (this.requests.length <= (this.#sending ? 1 : 0)) return null;
    if (this.broken && this.requests.length === 1) return null; // it may have arrived
    const request = this.requests.pop();
    this.#keep();
    return request;
  }

  /** Lay the answers that wait over what the server knows of an image. */
  over(image) {
    let shown = image;
    for (const { path, body } of this.requests) {
      if (path !== "/api/answers" || !body.images.includes(image.id)) continue;
      const label = body.skip ? null : (body.new_class ?? body.class);
      shown = { ...shown, label, skipped: Boolean(body.skip), saving: true };
    }
    return shown;
  }

  /** Send what waits. The promise is kept when all is stored, or when the server does not answer. */
  send() {
    clearTimeout(this.#timer);
    this.#sending ??= this.#sendAll().finally(() => (this.#sending = null));
    return this.#sending;
  }

  async #sendAll() {
    while (this.requests.length) {
      const request = this.requests[0];
      let answer, problem = null;
      try {
        answer = await post(request.path, request.body);
      } catch (error) {
        if (error instanceof Gone || error instanceof Locked) {
          this.broken = true;
          this.#timer = setTimeout(() => this.send(), PAUSE);
          this.on.gone(error);
          return;
        }
        problem = error;
      }
      this.requests.shift();
      this.#keep();
      if (this.broken) {
        this.broken = false;
        this.on.back();
      }
      if (problem) this.on.refused(request, problem);
      else this.on.stored(request, answer);
    }
  }

  #keep() {
    sessionStorage.setItem(this.name, JSON.stringify(this.requests));
  }
}
