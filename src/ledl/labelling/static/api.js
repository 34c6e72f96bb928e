// Requests. Three things can go wrong: the server says no, it does not know this page, it does not answer.

export class Refused extends Error {}
export class Locked extends Error {}
export class Gone extends Error {}

const LONGEST = 40000; // milliseconds; the server lets a request wait for at most 25 seconds

async function ask(path, options) {
  let response, answer;
  try {
    const signal = AbortSignal.any([AbortSignal.timeout(LONGEST), ...(options.signal ? [options.signal] : [])]);
    response = await fetch(path, { ...options, signal, credentials: "same-origin" });
    answer = await response.json();
  } catch (error) {
    if (!response || response.ok || response.status >= 500) throw new Gone(String(error));
    answer = {};
  }
  if (response.ok) return answer;
  const words = answer.error ?? `The server answered ${response.status}.`;
  if (response.status === 401 || response.status === 403) throw new Locked(words);
  if (response.status >= 500) throw new Gone(words);
  throw new Refused(words);
}

/** Values that are null, undefined or "" are left out of the address. A signal can end the request. */
export function get(path, values = {}, signal = null) {
  const given = Object.entries(values).filter(([, value]) => value != null && value !== "");
  return ask(given.length ? `${path}?${new URLSearchParams(given)}` : path, { signal });
}

export function post(path, body = {}) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
}
