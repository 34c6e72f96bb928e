// The page: what is shown, what a key does, and what the server has to say.

import { get, Locked, post, Refused } from "/static/api.js";
import { Classes } from "/static/classes.js";
import { $, count, el, images, percent, quoted, write } from "/static/dom.js";
import { Grid } from "/static/grid.js";
import { showHead } from "/static/head.js";
import { Large } from "/static/large.js";
import { Outbox } from "/static/outbox.js";
import { editSheet, exportSheet, help, progressSheet } from "/static/sheets.js";

const BATCH = 10; // questions at a time
const BLOCK = 40; // suggestions that one key confirms, at most
const CHUNK = 200; // images in one request
const PATIENCE = 25; // seconds that the server may wait for news
const PAUSE = 1000; // milliseconds between two tries
const WORD = 500; // milliseconds in which a second letter belongs to the same name
const SIZES = { ask: 168, check: 80, doubtful: 128, all: 128 }; // pixels
const MOVES = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "PageUp", "PageDown", "Home", "End"];

let state = null; // of the server
let outbox = null;
let view = { name: "ask", class: null, kind: "", of: "", search: "" };
let block = new Set(); // images that Enter confirms in Check
let showing = 0; // number of the last change of view: answers to older ones come too late
let begun = null; // the letter that has labelled an image last: it may be the first one of a name
let fetching = false; // a batch of questions is under way
const known = new Map(); // images as the server knows them, by id
const changed = new Map(); // when the server last stored something about an image, on the clock of this page
let clock = 0;
const wanted = new Set(); // images that are asked for
const classes = new Classes({ label: labelBy, create, edit, left: () => grid.box.focus({ preventScroll: true }) });
const grid = new Grid($("grid"), $("sheet"), { draw, need, open: toggleLarge, moved, scrolled });
const large = new Large(classes, closeLarge);

// ---- What the person sees ----

const say = (words) => write($("said"), words);
const shown = (id) => known.has(id) && outbox.over(known.get(id));
/** Take images as the server knew them at `time`, but for those about which it has stored something since. */
function learnt(items, time) {
  for (const image of items) if (!(changed.get(image.id) > time)) known.set(image.id, image);
}

/** Take images from the answer to a change of them. */
function settled(items) {
  clock += 1;
  for (const image of items) {
    known.set(image.id, image);
    changed.set(image.id, clock);
  }
}

const answered = (image) => image && (image.label != null || image.skipped);
const doubted = (image) => image.doubt != null && image.label != null && !image.saving;
/** The class that Enter gives: what the model thinks of a doubted label, or of an image without an answer. */
const proposal = (image) => (!image ? null : doubted(image) ? image.doubt : answered(image) ? null : (image.suggestion ?? null));

/** Say the label of an image: given, suggested, or none. */
function words(image) {
  const part = el("span", { class: "words" });
  const name = (label, kind) => el("bdi", { class: kind, text: classes.nameOf(label) });
  if (image.skipped) part.append(el("span", { class: "soft", text: "cannot say" }));
  else if (image.label != null) part.append(name(image.label, "given"), ...(doubted(image) ? [el("span", { class: "soft", text: " or " }), name(image.doubt, "guess"), "?"] : []));
  else if (image.suggestion != null) part.append(name(image.suggestion, "guess"), "?");
  return part;
}

function draw(tile, id) {
  const image = shown(id), caption = tile.querySelector(".caption");
  tile.classList.toggle("ticked", block.has(id));
  if (!image) return;
  const sure = image.label == null && !image.skipped && image.suggestion != null ? image.probability : null;
  const print = JSON.stringify([view.name, view.class, image, classes.nameOf(image.label), classes.nameOf(image.suggestion), classes.nameOf(image.doubt)]);
  if (tile.dataset.print === print) return;
  tile.dataset.print = print;
  tile.classList.toggle("answered", answered(image));
  tile.classList.toggle("saving", Boolean(image.saving));
  tile.classList.toggle("doubted", doubted(image));
  const meter = el("i", { class: "sure" });
  meter.style.width = `${100 * (sure ?? 0)}%`;
  caption.replaceChildren(
    el("span", { class: "line" }, upperLine(image), sure == null ? null : el("span", { class: "number", text: percent(sure) })),
    el("span", { class: "meter", hidden: sure == null }, meter),
    lowerLine(image),
  );
  tile.title = image.name;
  tile.setAttribute("aria-label", `${image.name}, ${spoken(image, sure)}${image.check ? ", random check" : ""}${image.saving ? ", not stored yet" : ""}`);
}

function upperLine(image) {
  if (doubted(image)) return el("bdi", { class: "words given", text: classes.nameOf(image.label) });
  return view.name === "check" && mayConfirm(image) ? el("span") : words(image); // there, all of them say the same
}

function lowerLine(image) {
  if (doubted(image)) return el("span", { class: "line" }, el("span", { class: "words" }, el("span", { class: "soft", text: "or " }), el("bdi", { class: "guess", text: classes.nameOf(image.doubt) }), "?"));
  if (image.check) return el("span", { class: "file", text: "random check", title: "Drawn at random: it tells how good the suggestions are" });
  return el("bdi", { class: "file", text: image.name });
}

function spoken(image, sure) {
  if (image.skipped) return "cannot say";
  if (image.label != null) return `labelled ${classes.nameOf(image.label)}${image.doubt == null ? "" : `, the model says ${classes.nameOf(image.doubt)}`}`;
  return image.suggestion == null ? "no suggestion" : `suggested ${classes.nameOf(image.suggestion)}, ${percent(sure)} sure`;
}

/** Draw all again that depends on images, classes or the outbox. */
function redraw() {
  if (state) scrolled();
  grid.redraw();
  moved();
}

function scrolled() {
  const before = block;
  block = new Set(view.name === "check" ? grid.whole.slice(0, BLOCK).filter((id) => mayConfirm(shown(id))) : []);
  if (block.size !== before.size || [...block].some((id) => !before.has(id))) {
    grid.redraw();
    actions();
  }
}

const mayConfirm = (image) => image && !answered(image) && image.suggestion === view.class;

function moved() {
  if (!state) return;
  const image = shown(grid.current);
  classes.mark(image?.label, image && !answered(image) ? image.suggestion : null);
  if (large.open && image) large.show(image, words(image), state.model?.number);
  else if (large.open) closeLarge();
  actions();
}

function actions() {
  const targets = grid.targets.map(shown).filter(Boolean);
  const most = grid.several ? ` (${count(targets.length)})` : "";
  const sheet = view.name === "check" && !grid.several && !large.open;
  let accept = `Accept${most}`;
  const these = block.size === 1 ? "this one" : `these ${count(block.size)}`;
  if (sheet) accept = block.size ? `Confirm ${these} as ${quoted(classes.nameOf(view.class))}` : "Confirm";
  else if (view.name === "doubtful") accept = `Change the label${most}`;
  write($("accept").lastElementChild, accept);
  $("accept").disabled = sheet ? !block.size : targets.every((image) => proposal(image) == null);
  write($("skip").lastElementChild, `Cannot say${most}`);
  $("skip").disabled = $("look").disabled = $("keep").disabled = !targets.length;
  $("clear").disabled = !targets.some((image) => image.label != null || image.skipped);
  $("keep").hidden = view.name !== "doubtful";
  $("clear").hidden = view.name !== "all";
}

// ---- What the person does ----

/** Answer for images: {class}, {new_class}, {skip: true} or {class: null}. It is shown at once, and sent. */
function send(targets, what, done) {
  outbox.add("/api/answers", { images: targets, class: null, ...what, view: view.name, model: state.model?.number ?? null });
  say(`${images(targets.length)}: ${done}`);
  if (lost) gone(lost); // says how many answers wait
}

function answer(targets, what, done) {
  if (!targets.length) return say("There is no image to label.");
  send(targets, what, done);
  step(targets);
}

function labelBy(one) {
  answer(grid.targets, { class: one.id }, `labelled ${quoted(one.name)}.`);
}

/** Type a name. A letter right after one that has labelled an image goes on with a name for that image. */
function typeName(key, time) {
  const place = begun && time - begun.time < WORD ? grid.ids.indexOf(begun.id) : -1;
  if (place >= 0) grid.goTo(place);
  classes.type(place >= 0 ? begun.key + key : key);
}

function create(name) {
  answer(grid.targets, { new_class: name }, `labelled ${quoted(name)}, a new class.`);
}

const skip = () => answer(grid.targets, { skip: true }, "cannot say.");
const clear = () => answer(grid.targets, { class: null }, "label taken away.");

/** Accept suggestions: of the ticked images in Check, else of the selected ones. */
function accept(only = false) {
  if (view.name === "check" && !grid.several && !large.open && !only) {
    if (!block.size) return say("Nothing here is ticked.");
    send([...block], { class: view.class }, `confirmed as ${quoted(classes.nameOf(view.class))}.`);
    redraw();
    return goOn();
  }
  const groups = Map.groupBy(grid.targets, (id) => proposal(shown(id)));
  groups.delete(null);
  if (!groups.size) return say("There is no suggestion to accept.");
  sendGroups(groups, "labelled");
}

/** Say that labels are right although the model contradicts them. */
function keepLabels() {
  sendGroups(Map.groupBy(grid.targets.filter((id) => typeof shown(id)?.label === "number"), (id) => shown(id).label), "stays");
}

/** Send one answer for each class, and say it in one sentence. */
function sendGroups(groups, verb) {
  for (const [label, ids] of groups) send(ids, { class: label }, `${verb} ${quoted(classes.nameOf(label))}.`);
  const all = [...groups.values()].flat();
  if (groups.size > 1) say(`${images(all.length)}: ${verb}, ${groups.size} classes.`);
  step(grid.targets);
}

/** Go to the next image without an answer; in views that show answers, to the next one. */
function step(targets) {
  const last = grid.ids.indexOf(targets.at(-1));
  const order = [...grid.ids.keys()].map((place) => (last + 1 + place) % grid.ids.length);
  const open = order.find((place) => view.name === "ask" && !answered(shown(grid.ids[place])));
  grid.goTo(open ?? Math.min(last + 1, grid.ids.length - 1));
  redraw();
  goOn();
}

/** Show what comes next when all that is shown has an answer. */
function goOn() {
  if (view.name === "ask" && grid.ids.every((id) => answered(shown(id)))) askMore();
  if (view.name === "check" && !block.size && grid.whole.every((id) => known.has(id))) {
    const rest = grid.ids.filter((id) => !known.has(id) || mayConfirm(shown(id)));
    if (!rest.length) return nextClass(1);
    grid.box.scrollTop = 0;
    grid.set(rest, rest[0]);
  }
}

/** Undo or redo the last request of the person, as a whole. */
async function turnBack(path, done) {
  const unsent = path === "/api/undo" && outbox.takeBack();
  if (unsent) {
    say("Undone.");
    if (lost) gone(lost);
    return bringBack(unsent.body.images);
  }
  await outbox.send();
  if (outbox.requests.length) return say("The last answer is not stored yet. It can be undone then.");
  const what = path === "/api/undo" ? state.can_undo : state.can_redo;
  await attempt(async () => {
    const { items } = await post(path);
    settled(items);
    say(`${done}${what ? `: ${what}` : ""}.`);
    bringBack(items.map((image) => image.id));
  });
}

/** Show images that have no answer any more where the person sees them. */
function bringBack(ids) {
  const open = ids.filter((id) => !answered(shown(id)) && !grid.ids.includes(id));
  if (open.length && (view.name === "ask" || view.name === "check")) grid.set([...open, ...grid.ids], ids[0]);
  const place = grid.ids.indexOf(ids[0]);
  if (place >= 0) grid.goTo(place);
  redraw();
}

function edit(one) {
  editSheet(one, classes.all, (done) => {
    say(done);
    grid.box.focus({ preventScroll: true });
  });
}

function toggleLarge() {
  if (large.open) return closeLarge();
  const image = shown(grid.current);
  if (!image) return;
  large.show(image, words(image), state.model?.number);
  large.box.focus();
  actions();
}

function closeLarge() {
  large.close();
  grid.box.focus({ preventScroll: true });
  actions();
}

// ---- Views ----

const filters = () => (view.name === "all" ? { view: "all", class: view.of, state: view.kind, search: view.search } : { view: view.name, class: view.class });

/** Show a view from its beginning. */
async function show(change) {
  view = { ...view, ...change };
  const turn = ++showing;
  if (large.open) closeLarge();
  block = new Set();
  location.hash = view.name;
  for (const button of $("views").children) button.setAttribute("aria-current", button.dataset.view === view.name);
  $("pick").hidden = view.name !== "check";
  $("filters").hidden = view.name !== "all";
  $("size").value = sessionStorage.getItem(`ledl-size:${view.name}`) ?? SIZES[view.name];
  grid.size = Number($("size").value);
  if (view.name === "check") chooseClass();
  about();
  if (view.name === "ask") {
    grid.set([]);
    return askMore();
  }
  await attempt(async () => {
    const { ids } = view.name === "check" && view.class == null ? { ids: [] } : await get("/api/ids", filters());
    if (turn !== showing) return;
    grid.box.scrollTop = 0;
    grid.set(ids, ids[0]);
    about();
  });
}

async function askMore() {
  if (fetching) return;
  fetching = true;
  const turn = showing, time = clock;
  await attempt(async () => {
    const { items } = await get("/api/questions", { n: BATCH, exclude: outbox.requests.flatMap(({ body }) => body.images ?? []).join() });
    if (turn !== showing) return;
    learnt(items, time);
    const ids = items.map((image) => image.id);
    grid.set(ids, ids[0]);
    grid.box.scrollTop = 0;
    about();
  });
  fetching = false;
  if (view.name === "ask" && turn !== showing) askMore();
}

/** Ask for images that are to be drawn and that the page does not know. */
function need(ids) {
  const missing = ids.filter((id) => !known.has(id) && !wanted.has(id));
  if (missing.length) load(missing);
}

async function load(ids) {
  const time = clock;
  ids.forEach((id) => wanted.add(id));
  for (let start = 0; start < ids.length; start += CHUNK) {
    await attempt(async () => {
      const { items } = await get("/api/images", { ids: ids.slice(start, start + CHUNK).join() });
      learnt(items, time);
    });
  }
  ids.forEach((id) => wanted.delete(id));
  redraw();
}

/** Ask again for what is shown, and let the rest of the list follow the model: nothing that is seen moves. */
async function refresh() {
  const turn = showing, seen = view.name === "ask" ? grid.ids : grid.shown, there = new Set(seen);
  for (const id of known.keys()) if (!there.has(id)) known.delete(id); // asked for anew when it is seen
  if (seen.length) await load(seen);
  if (view.name === "ask" || turn !== showing) {
    if (view.name === "ask") goOn();
    return;
  }
  if (view.name === "check" && !grid.ids.length) return show({ class: null });
  await attempt(async () => {
    const { ids } = await get("/api/ids", filters());
    if (turn !== showing) return;
    const last = grid.ids.indexOf(grid.shown.at(-1)) + 1;
    const kept = grid.ids.slice(0, last), above = new Set(kept);
    const next = [...kept, ...ids.filter((id) => !above.has(id))];
    if (!grid.several && (next.length !== grid.ids.length || next.some((id, place) => id !== grid.ids[place]))) grid.set(next);
    about();
  });
}

function about() {
  if (!state) return; // it has not come yet, and this is shown again when it does
  const total = grid.ids.length, name = classes.nameOf(view.class);
  const sheet = {
    ask: classes.all.length && total ? "The most useful images first. Press the key of a class, Enter to accept, or + to type the name of a new one." : "",
    check: view.class == null ? "" : "Correct what is wrong, then confirm all that are ticked with Enter.",
    doubtful: total ? "The model contradicts these labels. Enter changes the label, Shift+Enter keeps it." : "",
    all: images(total) + (view.of && total ? ". Those with “?” are suggestions." : ""),
  };
  const left = state.n_images - state.n_labelled - state.n_skipped;
  const nothing = {
    ask: !state.n_images ? "There is no image in this folder." : left ? "" : `Every image has an answer. ${state.n_doubtful ? "Look at Doubtful, or export." : "Export what you need."}`,
    check: state.model ? `No image without a label is likely to be ${name ? quoted(name) : "anything"}.` : "There are no suggestions yet. They come once two classes have labels and the images are read.",
    doubtful: "The model contradicts no label.",
    all: "No image is like that.",
  };
  write($("about"), sheet[view.name]);
  write($("empty"), nothing[view.name]);
  $("empty").hidden = total > 0 || !nothing[view.name];
  $("first").hidden = classes.all.length > 0 || !state.n_images || outbox.requests.some(({ body }) => body.new_class);
}

function chooseClass() {
  const open = classes.all.filter((one) => one.n_suggested);
  if (!open.some((one) => one.id === view.class)) view.class = open.toSorted((a, b) => b.n_suggested - a.n_suggested)[0]?.id ?? null;
  listClasses();
}

function nextClass(by) {
  const open = classes.all.filter((one) => one.n_suggested || one.id === view.class);
  const place = open.findIndex((one) => one.id === view.class);
  const next = open[(place + by + open.length) % open.length];
  show({ class: next && next.id !== view.class ? next.id : null });
}

function listClasses() {
  if (view.of && !classes.find(view.of)) view.of = ""; // it was merged or deleted
  const choice = (one, number) => el("option", { value: one.id, text: `${one.name} (${count(number)})` });
  const fill = (box, options, value) => {
    const print = JSON.stringify(options.map((option) => [option.value, option.textContent]));
    if (box.dataset.print !== print && document.activeElement !== box) {
      box.dataset.print = print;
      box.replaceChildren(...options);
    }
    box.value = value ?? "";
  };
  fill($("which"), classes.all.filter((one) => one.n_suggested || one.id === view.class).map((one) => choice(one, one.n_suggested)), view.class);
  fill($("of"), [el("option", { value: "", text: "Every class" }), ...classes.all.map((one) => choice(one, one.count + one.n_suggested))], view.of);
}

// ---- What the server says ----

/** Do something that may fail; say why it did. */
async function attempt(work) {
  try {
    await work();
    return true;
  } catch (error) {
    if (error instanceof Refused) say(error.message);
    else gone(error);
    return false;
  }
}

let lost = null; // the error, while the server does not answer
let listening = new AbortController(); // of the request that waits for news

function gone(error) {
  if (!lost) listening.abort(); // whoever waits for news shall find out when the server is back
  lost = error;
  document.body.classList.add("lost");
  const kept = outbox?.requests.length ?? 0;
  const safe = kept ? ` ${kept === 1 ? "1 answer is" : `${count(kept)} answers are`} kept here and sent when it is back.` : " Nothing is lost.";
  write($("trouble"), error instanceof Locked
    ? `${error.message} Open the address that ledl label printed.${safe}`
    : `The server does not answer. Start ledl label again with the same folder; this page goes on by itself.${safe}`);
  $("banner").hidden = false;
}

function back() {
  if (!lost) return;
  lost = null;
  document.body.classList.remove("lost");
  $("banner").hidden = true;
  say("The server is back.");
  wanted.clear();
  outbox.send();
  if (!grid.ids.length) show({});
  else refresh();
}

function stored(request, answer) {
  settled(answer.items);
  redraw();
}

function refused(request, error) {
  say(error.message);
  write($("reason"), `${images(request.body.images.length)} not labelled. ${error.message}`);
  $("refusal").hidden = false;
  bringBack(request.body.images);
}

function take(next) {
  const before = state;
  state = next;
  $("export").disabled = false; // its sheet names the folder
  $("folder").textContent = state.folder.replace(/[/\\]+$/, "").split(/[/\\]/).at(-1);
  $("folder").title = state.folder;
  document.title = `${$("folder").textContent}: ${count(state.n_labelled)} of ${count(state.n_images)} · ledl label`;
  showHead(state);
  for (const [button, what] of [["undo", state.can_undo], ["redo", state.can_redo]]) $(button).disabled = what == null && !outbox?.requests.length;
  $("undo").title = state.can_undo ? `Undo: ${state.can_undo} (Backspace)` : "Undo (Backspace)";
  $("doubts").hidden = !state.n_doubtful;
  write($("doubts"), count(state.n_doubtful ?? 0));
  classes.show(state.folder, state.classes);
  if (!before) return begin();
  listClasses();
  about();
  redraw();
  if (contents(before) !== contents(state)) refresh();
}

/** All of a state that changes what images show. */
const contents = ({ model, n_labelled, n_skipped, n_images, classes }) => JSON.stringify([model?.number, n_labelled, n_skipped, n_images, classes.map(({ id, count }) => [id, count])]);

function begin() {
  outbox = new Outbox(state.folder, { stored, refused, gone, back });
  listClasses();
  const name = location.hash.slice(1);
  show({ name: name in SIZES ? name : "ask" });
  if (!classes.all.length && view.name === "ask") classes.type();
  else grid.box.focus({ preventScroll: true });
}

async function listen() {
  for (;;) {
    listening = new AbortController();
    try {
      take(await get("/api/state", state && !lost ? { after: state.revision, wait: PATIENCE } : {}, listening.signal));
      back();
    } catch (error) {
      if (error instanceof TypeError || error instanceof RangeError || error instanceof ReferenceError) throw error; // a fault of this page
      gone(error);
      await new Promise((resolve) => {
        setTimeout(resolve, PAUSE);
        $("retry").onclick = resolve;
      });
    }
  }
}

// ---- Keys ----

const VIEW_KEYS = { A: "ask", C: "check", D: "doubtful", L: "all" };
const ACTIONS = {
  "?": help, "+": () => classes.type(), "=": () => classes.type(), "-": skip, "−": skip, Delete: clear, " ": toggleLarge,
  ",": () => view.name === "check" && nextClass(-1), ".": () => view.name === "check" && nextClass(1),
  "/": () => (view.name === "all" ? Promise.resolve() : show({ name: "all" })).then(() => $("search").focus()),
  Escape: () => (large.open ? closeLarge() : grid.goTo(grid.cursor)),
};

function command(event) {
  const { key } = event;
  if (event.ctrlKey || event.metaKey) {
    if (key === "z" || key === "Z") return () => (event.shiftKey ? turnBack("/api/redo", "Redone") : turnBack("/api/undo", "Undone"));
    if (key === "y") return () => turnBack("/api/redo", "Redone");
    if (key === "a") return () => grid.selectAll();
    return null;
  }
  if (event.altKey) return null;
  if (key === "Backspace") return () => (event.shiftKey ? turnBack("/api/redo", "Redone") : turnBack("/api/undo", "Undone"));
  if (key === "Enter") return () => (!event.shiftKey ? accept() : view.name === "doubtful" ? keepLabels() : accept(true));
  if (MOVES.includes(key)) return () => grid.move(key, event.shiftKey);
  if (key in ACTIONS) return ACTIONS[key];
  if (event.shiftKey && key in VIEW_KEYS) return () => show({ name: VIEW_KEYS[key] });
  const one = key.length === 1 && !(event.shiftKey && /\p{L}/u.test(key)) && classes.ofKey(key);
  if (one) return () => {
    begun = grid.several || !/\p{L}/u.test(key) ? null : { id: grid.current, key, time: event.timeStamp };
    labelBy(one);
  };
  if (!event.shiftKey && /^[\p{L}\p{N}]$/u.test(key)) return () => typeName(key, event.timeStamp);
  return null;
}

document.addEventListener("keydown", (event) => {
  if (!state || event.isComposing || $("sheetbox").open) return;
  const at = event.target;
  if (at.matches("input, select, textarea")) {
    if (event.key === "Escape" && at !== classes.field) grid.box.focus({ preventScroll: true });
    return;
  }
  if (at.matches("button, a") && (event.key === "Enter" || event.key === " ")) return;
  const work = command(event);
  if (!work) return;
  event.preventDefault();
  work();
});

// After a mouse has pressed a button, keys are for the images again. Before the button does its work: it may open a sheet.
document.addEventListener("click", (event) => {
  if (event.detail && event.target.closest("button, #classes") && !$("sheetbox").open) grid.box.focus({ preventScroll: true });
}, { capture: true });
for (const box of document.querySelectorAll("select")) {
  let mouse = false;
  box.addEventListener("pointerdown", () => (mouse = true));
  box.addEventListener("keydown", () => (mouse = false));
  box.addEventListener("change", () => mouse && grid.box.focus({ preventScroll: true }));
}

$("views").addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button) show({ name: button.dataset.view });
});
$("fine").addEventListener("click", () => ($("refusal").hidden = true));
$("undo").addEventListener("click", () => turnBack("/api/undo", "Undone"));
$("redo").addEventListener("click", () => turnBack("/api/redo", "Redone"));
$("export").addEventListener("click", () => exportSheet(state));
$("help").addEventListener("click", help);
$("estimate").addEventListener("click", () => progressSheet(state));
$("accept").addEventListener("click", () => accept());
$("keep").addEventListener("click", keepLabels);
$("skip").addEventListener("click", skip);
$("clear").addEventListener("click", clear);
$("look").addEventListener("click", toggleLarge);
$("before").addEventListener("click", () => nextClass(-1));
$("after").addEventListener("click", () => nextClass(1));
$("which").addEventListener("change", (event) => show({ class: Number(event.target.value) }));
$("kind").addEventListener("change", (event) => show({ kind: event.target.value }));
$("of").addEventListener("change", (event) => show({ of: event.target.value && Number(event.target.value) }));
let typing = null;
$("search").addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(() => show({ search: event.target.value.trim() }), 150);
});
$("search").addEventListener("keydown", (event) => {
  if (event.key === "Enter" || event.key === "ArrowDown") grid.box.focus({ preventScroll: true });
});
$("size").addEventListener("input", (event) => {
  sessionStorage.setItem(`ledl-size:${view.name}`, event.target.value);
  grid.size = Number(event.target.value);
});
listen();
