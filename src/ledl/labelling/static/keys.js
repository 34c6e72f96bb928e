// One or two keys for each class: a digit for the first nine, and a letter of its name.

const LETTERS = "abcdefghijklmnopqrstuvwxyz";
const DIGITS = "123456789";
const plain = (name) => name.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();

/** Letters of a name in the order in which one would look for its key: initials of words, then the rest. */
function wishes(name) {
  const words = plain(name).split(/[^\p{L}\p{N}]+/u);
  return [...words.map((word) => word[0] ?? ""), ...words.join("")].filter((letter) => LETTERS.includes(letter) && letter);
}

/**
 * Give keys to classes. `before` is the last result; a class keeps its keys while it keeps its name, so that
 * fingers need not learn anew when there is one class more.
 */
export function giveKeys(classes, before = {}) {
  const keys = {}, taken = new Set();
  const take = (id, kind, key) => {
    if (!key || taken.has(key) || keys[id][kind]) return;
    keys[id][kind] = key;
    taken.add(key);
  };
  for (const { id, name } of classes) {
    keys[id] = { name };
    if (before[id]?.name !== name) continue;
    take(id, "digit", before[id].digit);
    take(id, "letter", before[id].letter);
  }
  const numbers = classes.some(({ name }) => /^\d$/.test(name)); // then a digit means the class of that name
  for (const { id, name } of classes) if (/^\d$/.test(name)) take(id, "digit", name);
  if (!numbers) for (const { id } of classes) take(id, "digit", [...DIGITS].find((digit) => !taken.has(digit)));
  for (const { id, name } of classes) take(id, "letter", wishes(name)[0]);
  for (const { id, name } of classes) take(id, "letter", wishes(name).find((letter) => !taken.has(letter)));
  for (const { id } of classes) {
    if (!keys[id].digit) take(id, "letter", [...LETTERS].find((letter) => !taken.has(letter)));
  }
  return keys;
}
