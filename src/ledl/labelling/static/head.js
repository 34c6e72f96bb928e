// How far it is: labels, the estimate in words, its curve, what the computer is doing.

import { $, count, images, percent, svg, write } from "/static/dom.js";

export function accuracyWords({ accuracy, low, high, n_checks: checks }) {
  const from = checks === 1 ? "1 random check" : `${count(checks)} random checks`;
  return `About ${percent(accuracy)} of the suggestions are right (${Math.round(100 * low)} to ${percent(high)}, from ${from}).`;
}

export function forecastWords({ forecast, estimate }) {
  if (!forecast) return "";
  const more = `${count(forecast.labels)} more labels would`;
  const gain = estimate ? Math.round(100 * forecast.accuracy) - Math.round(100 * estimate.accuracy) : 1;
  return gain > 0 ? `${more} bring about ${percent(forecast.accuracy)}.` : `${more} change little.`;
}

function workWords({ features, learning, model, notice }) {
  if (features.error || notice) return features.error ?? notice;
  if (!features.ready) return `Reading the images: ${count(features.done)} of ${count(features.total)}. You can label meanwhile.`;
  if (learning) return "Learning from your answers …";
  if (model) return `Learnt from ${count(model.labels)} labels.`;
  return "";
}

export function showHead(state) {
  const left = state.n_images - state.n_labelled - state.n_skipped;
  write($("labelled"), count(state.n_labelled));
  write($("total"), `of ${images(state.n_images)} labelled${state.n_skipped ? `, ${count(state.n_skipped)} “cannot say”` : ""}`);
  $("share").value = state.n_images ? state.n_labelled / state.n_images : 0;
  let words = "No estimate yet.";
  if (state.estimate) words = left ? accuracyWords(state.estimate) : "Every image has an answer.";
  else if (state.classes.length < 2) words = "With two classes the page begins to suggest.";
  else if (state.model) words = "How good they are is known after some random checks.";
  write($("accuracy"), words);
  write($("forecast"), left ? forecastWords(state) : "");
  $("curve").replaceChildren(...(state.curve.length > 1 ? [chart(state.curve, 120, 34)] : []));
  write($("doing"), workWords(state));
  $("work").classList.toggle("trouble", Boolean(state.features.error || state.notice));
  $("dot").hidden = !(state.learning || !state.features.ready) || Boolean(state.features.error);
}

/** Draw the estimates over the labels, with their intervals. With `axes` also numbers. */
export function chart(curve, width, height, axes = false) {
  const [left, right, top, bottom] = axes ? [44, 12, 10, 34] : [1, 3, 3, 3];
  const floor = Math.min(0.9, Math.floor(10 * Math.min(...curve.map((point) => point.low))) / 10);
  const most = Math.max(...curve.map((point) => point.labels));
  const x = (labels) => left + ((width - left - right) * labels) / most;
  const y = (share) => top + ((height - top - bottom) * (1 - share)) / (1 - floor);
  const line = (points) => points.map(([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`).join(" ");
  const rising = curve.toSorted((a, b) => a.labels - b.labels); // labels can be undone
  const band = [...rising.map((point) => [point.labels, point.high]), ...rising.toReversed().map((point) => [point.labels, point.low])];
  const end = curve.at(-1);
  const words = `Right suggestions by number of labels: ${percent(curve[0].accuracy)} at ${count(curve[0].labels)}, ${percent(end.accuracy)} at ${count(end.labels)}.`;
  const picture = svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": words });
  if (axes) {
    for (const share of [floor, (1 + floor) / 2, 1]) {
      picture.append(svg("line", { class: "rule", x1: left, x2: width - right, y1: y(share), y2: y(share) }));
      picture.append(svg("text", { x: left - 8, y: y(share) + 4, "text-anchor": "end", text: percent(share) }));
    }
    for (const labels of [0, most]) {
      picture.append(svg("text", { x: x(labels), y: height - 12, "text-anchor": labels ? "end" : "start", text: labels ? `${count(labels)} labels` : "0" }));
    }
  }
  picture.append(svg("polygon", { class: "band", points: line(band) }));
  picture.append(svg("polyline", { class: "curve", points: line(rising.map((point) => [point.labels, point.accuracy])) }));
  picture.append(svg("circle", { class: "end", cx: x(end.labels), cy: y(end.accuracy), r: axes ? 3.5 : 2.5 }));
  return picture;
}
