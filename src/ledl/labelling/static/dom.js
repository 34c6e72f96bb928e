// Elements and words. Names of files and classes become text, never HTML.

export const $ = (id) => document.getElementById(id);

/** Make an element. Attributes: `text` is its text, `on` its listeners, true and false set or leave out. */
export function el(tag, { text, on = {}, ...attributes } = {}, ...children) {
  return fill(document.createElement(tag), text, on, attributes, children);
}

export function svg(tag, { text, on = {}, ...attributes } = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), text, on, attributes, children);
}

function fill(node, text, on, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  for (const [event, listener] of Object.entries(on)) node.addEventListener(event, listener);
  if (text != null) node.textContent = text;
  node.append(...children.filter((child) => child != null));
  return node;
}

/** Change a text only where it differs: screen readers speak what changes. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A name inside a sentence; the marks around it keep right-to-left letters from turning the rest. */
export const quoted = (name) => `“\u2068${name}\u2069”`;
export const count = (n) => n.toLocaleString("en");
export const percent = (share) => `${Math.round(100 * share)} %`;
export const images = (n) => (n === 1 ? "1 image" : `${count(n)} images`);
