// The live page: takes a drawing or an image file, asks the server, draws the answers. It needs nothing from elsewhere.
"use strict";

const byId = (id) => document.getElementById(id);
const pad = byId("pad");
const brush = pad.getContext("2d");
const state = {
  about: null, strokes: [], file: null, pen: null, seed: 0, example: 8, given: false,
  subject: 0, // counts the images: what is said of an earlier one is not shown
  running: false, again: false,
};

// ---- Asking: one request at a time, and always for what is there now. Whoever continues to draw or slide sees the
// answers that come meanwhile.

async function ask() {
  state.again = true;
  if (state.running) return;
  state.running = true;
  while (state.again) {
    state.again = false;
    try {
      await askOnce();
    } catch (error) {
      console.error(error);
      say("The answer cannot be shown; the browser's console says why.");
    }
  }
  state.running = false;
}

async function askOnce() {
  const subject = state.subject;
  if (!state.file && !state.strokes.length) {
    showNothing();
    return;
  }
  const answer = await request();
  if (subject === state.subject) show(answer);
}

async function request() {
  const wishes = new URLSearchParams({ noise: byId("noise").value, samples: byId("samples").value, seed: state.seed });
  const [kind, body] = state.file ? ["image", state.file] : ["drawing", JSON.stringify({ strokes: state.strokes })];
  try {
    const response = await fetch(`api/${kind}?${wishes}`, { method: "POST", body });
    return await response.json();
  } catch {
    return { error: "The server did not answer: is it still running?" };
  }
}

// ---- Showing

function show(answer) {
  say(answer.error);
  if (answer.error) {
    showNothing();
    return;
  }
  drawSeen(answer.shape, answer.pixels);
  byId("answers").replaceChildren(...answer.answers.map(card));
  byId("summary").replaceChildren(...answer.answers.map(inShort));
  // To screen readers: what it came to, not every answer on the way.
  if (!state.again) byId("spoken").textContent = Array.from(byId("summary").children, (each) => each.textContent).join(". ");
}

function showNothing() {
  const seen = byId("seen");
  seen.getContext("2d").clearRect(0, 0, seen.width, seen.height);
  byId("summary").replaceChildren();
  byId("spoken").textContent = "";
  byId("answers").replaceChildren(...state.about.methods.map((method) => {
    const words = element("p", "empty", "Nothing to answer yet.");
    return element("article", "card answer", element("h2", "", method), words);
  }));
}

function say(words) {
  byId("message").hidden = !words;
  byId("message").textContent = words || "";
}

function element(name, kind, ...children) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...children);
  return made;
}

function card(answer) {
  const what = element("div", answer.name.length > 2 ? "what long" : "what", answer.name);
  const badge = element("span", "badge", "one pass, nothing sampled");
  const figures = element("p", "figures", element("span", "", `confidence ${answer.confidence.toFixed(2)}`));
  if (answer.certain !== null) {
    badge.classList.add(answer.certain ? "certain" : "doubt");
    badge.textContent = answer.certain ? "certain" : "not certain";
    const p = element("span", "p", `p-value ${inWords(answer.p_value, answer.certain, state.about.threshold)}`);
    figures.prepend(p, " · ");
  }
  const verdict = element("div", "verdict", what, element("div", "", badge, figures));
  const made = element("article", "card answer", element("h2", "", answer.method), verdict);
  const over = answer.samples > 1 ? `over ${answer.samples} masks` : "of one pass";
  made.append(element("h3", "", `Class probabilities ${over}`), boxPlots(answer));
  if (answer.kept.length) made.append(element("h3", "", "Keep probabilities by layer"), keepPlots(answer));
  return made;
}

// For narrow windows, where the answers are below what is drawn.
function inShort(answer) {
  const [kind, words] = answer.certain ? ["certain", "certain"] : ["doubt", "not certain"];
  const verdict = element("span", kind, answer.certain === null ? "" : words);
  return element("span", "short", `${answer.method}: `, element("b", "", answer.name), " ", verdict);
}

// To two digits; where that would make it as large as the threshold, it is below it in words.
function inWords(p, certain, threshold) {
  if (p < 0.001) return "< 0.001";
  const shown = Number(p.toPrecision(2));
  return certain && shown >= threshold ? `< ${threshold}` : `= ${shown}`;
}

function drawSeen([channels, height, width], pixels) {
  const seen = byId("seen");
  [seen.width, seen.height] = [width, height];
  const image = new ImageData(width, height);
  for (let place = 0; place < width * height; place += 1) {
    for (let colour = 0; colour < 3; colour += 1) {
      image.data[4 * place + colour] = pixels[(channels === 3 ? colour : 0) * width * height + place];
    }
    image.data[4 * place + 3] = 255;
  }
  seen.getContext("2d").putImageData(image, 0, 0);
}

// ---- Plots: probabilities from 0 to 1 go to the right, one row a class or a layer.

const WIDE = 360;
const RIGHT = 44;

function shape(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => made.setAttribute(key, value));
  if (text !== undefined) made.textContent = text;
  return made;
}

function plot(high, names, description, top) {
  const left = Math.min(120, 14 + 7 * Math.max(...names.map((name) => name.length)));
  const at = (value) => left + value * (WIDE - left - RIGHT);
  const bottom = names.length * high + 4;
  const svg = shape("svg", { viewBox: `0 0 ${WIDE} ${bottom + 18}`, role: "img", "aria-label": description });
  [0, 0.25, 0.5, 0.75, 1].forEach((tick) => {
    svg.append(shape("line", { class: "grid", x1: at(tick), x2: at(tick), y1: 2, y2: bottom }));
    svg.append(shape("text", { x: at(tick), y: bottom + 14, "text-anchor": "middle" }, tick));
  });
  names.forEach((name, row) => {
    const cut = name.length > 15 ? `${name.slice(0, 14)}…` : name;
    const kind = row === top ? "top" : "";
    svg.append(shape("text", { class: kind, x: left - 8, y: row * high + high / 2 + 6, "text-anchor": "end" }, cut));
  });
  return { svg, at };
}

function boxPlots(answer) {
  const names = answer.boxes.map((box) => box.name);
  const high = 21;
  const top = names.indexOf(answer.name);
  const { svg, at } = plot(high, names, `Class probabilities; ${answer.name} is highest`, top);
  answer.boxes.forEach((box, row) => {
    const y = row * high + high / 2 + 2;
    svg.append(shape("line", { class: "whisker", x1: at(box.low), x2: at(box.high), y1: y, y2: y }));
    const width = Math.max(1, at(box.upper) - at(box.lower));
    svg.append(shape("rect", { class: "box", x: at(box.lower), y: y - 6, width, height: 12, rx: 1.5 }));
    svg.append(shape("line", { class: "median", x1: at(box.median), x2: at(box.median), y1: y - 6, y2: y + 6 }));
    const kind = row === top ? "top" : "";
    svg.append(shape("text", { class: kind, x: WIDE, y: y + 4, "text-anchor": "end" }, box.mean.toFixed(2)));
  });
  return svg;
}

function keepPlots(answer) {
  const labels = answer.kept.map((layer) => layer.label);
  const names = labels.every((label) => label.length <= 10) ? labels : labels.map((label, row) => String(row + 1));
  const high = 30;
  const { svg, at } = plot(high, names, "Keep probabilities");
  answer.kept.forEach((layer, row) => {
    const [base, most] = [(row + 1) * high, Math.max(...layer.bars, ...layer.usual)];
    const group = svg.appendChild(shape("g", {}));
    const hills = (bars, look) => bars.forEach((count, bar) => {
      const [x, width] = [at(bar / bars.length), at(1 / bars.length) - at(0)];
      const height = Math.max(1, Math.sqrt(count / most) * (high - 6)); // few units show beside many
      if (count) group.append(shape("rect", { class: look, x, y: base - height, width, height }));
    });
    hills(layer.usual, "usual");
    hills(layer.bars, "hill");
    const [x, kind] = [at(layer.mean), layer.bars.length ? "median" : "fixed"];
    group.append(shape("line", { class: kind, x1: x, x2: x, y1: base - high + 6, y2: base }));
    group.append(shape("text", { x: WIDE, y: base - 9, "text-anchor": "end" }, layer.mean.toFixed(2)));
    const range = `units from ${layer.low.toFixed(3)} to ${layer.high.toFixed(3)}`;
    group.append(shape("title", {}, `${layer.label}: ${layer.bars.length ? range : "the same for every unit and image"}`));
  });
  return svg;
}

// ---- Drawing

function paint() {
  brush.clearRect(0, 0, pad.width, pad.height);
  brush.strokeStyle = "#fff";
  brush.lineWidth = pad.width / 15;
  brush.lineCap = brush.lineJoin = "round";
  state.strokes.forEach((stroke) => {
    brush.beginPath();
    const [first, ...others] = stroke.map(([x, y]) => [x * pad.width, y * pad.height]);
    brush.moveTo(...first);
    (others.length ? others : [first]).forEach((point) => brush.lineTo(...point));
    brush.stroke();
  });
  const [hint, empty] = [byId("hint"), !state.strokes.length && !state.file];
  const wish = state.about.drawable ? "Draw here, or drop an image" : "Drop an image here, or choose one";
  hint.textContent = state.given ? "An example: draw your own here" : empty ? wish : "";
  hint.classList.toggle("low", state.given);
}

function place(event) {
  const frame = pad.getBoundingClientRect();
  const unit = (value) => Math.round(1e4 * Math.min(1, Math.max(0, value))) / 1e4;
  return [unit((event.clientX - frame.left) / frame.width), unit((event.clientY - frame.top) / frame.height)];
}

// One pen at a time: a second finger draws nothing, and what is cleared under a pen stays cleared.
function begin(event) {
  if (event.button !== 0 || !event.isPrimary) return;
  event.preventDefault();
  pad.setPointerCapture(event.pointerId);
  if (state.file || state.given) forget();
  const stroke = [place(event)];
  state.pen = { id: event.pointerId, stroke };
  state.strokes.push(stroke);
  changed();
}

function goOn(event) {
  if (event.pointerId !== state.pen?.id) return;
  const { stroke } = state.pen;
  const point = place(event);
  const last = stroke.at(-1);
  if (Math.hypot(point[0] - last[0], point[1] - last[1]) < 0.005) return;
  stroke.push(point);
  changed();
}

function end(event) {
  if (event.pointerId === state.pen?.id) state.pen = null;
}

function changed() {
  paint();
  ask();
}

function forget() {
  state.subject += 1;
  state.strokes = [];
  [state.file, state.pen, state.given] = [null, null, false];
  byId("file").value = "";
  say();
}

function drawExample() {
  const examples = Object.values(state.about.examples);
  forget();
  state.given = true;
  state.strokes = structuredClone(examples[state.example % examples.length]);
  state.example += 3; // not in order, yet all of them
  changed();
}

// ---- Image files

async function take(file) {
  if (!file) return;
  forget();
  if (file.size > state.about.upload) {
    changed();
    say(`This file has ${(file.size / 2 ** 20).toFixed(1)} MiB: at most ${state.about.upload / 2 ** 20} are taken.`);
    return;
  }
  state.file = file;
  changed();
  try {
    const image = await createImageBitmap(file);
    if (state.file !== file) return;
    const scale = Math.min(pad.width / image.width, pad.height / image.height);
    const [width, height] = [image.width * scale, image.height * scale];
    brush.drawImage(image, (pad.width - width) / 2, (pad.height - height) / 2, width, height);
  } catch {
    // The server says what is wrong with it.
  }
}

function dragged(event) {
  event.preventDefault();
  byId("drop").classList.toggle("over", event.type === "dragover");
  if (event.type !== "drop") return;
  const [file] = event.dataTransfer.files;
  if (file) take(file);
  else say("That was not a file: drop an image file, or choose one.");
}

// ---- Setting up

function showSettings() {
  byId("noise-value").textContent = `sd ${Number(byId("noise").value).toFixed(2)}`;
  byId("samples-value").textContent = byId("samples").value;
}

function prepare(about) {
  state.about = about;
  byId("run").textContent = about.name;
  byId("threshold").textContent = about.threshold;
  if (about.worth.length) byId("worth").textContent = about.worth.join(" ");
  byId("noise").max = about.noise.most;
  byId("noise").value = about.noise.trained; // where networks meet what they know, and have doubts
  byId("trained").value = about.noise.trained; // a mark on the slider
  byId("trained-words").textContent = about.noise.trained ? `trained with sd ${about.noise.trained}` : "";
  byId("samples").max = about.samples.most;
  byId("samples").value = about.samples.usual;
  byId("example").hidden = !Object.keys(about.examples).length;
  byId("drop").classList.toggle("drawable", about.drawable);
  if (about.drawable) {
    pad.addEventListener("pointerdown", begin);
    pad.addEventListener("pointermove", goOn);
    ["pointerup", "pointercancel"].forEach((kind) => pad.addEventListener(kind, end));
  }
  ["dragover", "dragleave", "drop"].forEach((kind) => document.addEventListener(kind, dragged));
  byId("clear").addEventListener("click", () => {
    forget();
    changed();
  });
  byId("example").addEventListener("click", drawExample);
  byId("file").addEventListener("change", (event) => take(event.target.files[0]));
  byId("again").addEventListener("click", () => {
    [state.seed] = crypto.getRandomValues(new Uint32Array(1));
    ask();
  });
  ["noise", "samples"].forEach((id) => byId(id).addEventListener("input", () => {
    showSettings();
    ask();
  }));
  showSettings();
  if (byId("example").hidden) changed();
  else drawExample();
}

// Light and dark: as the system has it, until a visitor decides.
const look = document.documentElement.dataset;
byId("theme").addEventListener("click", () => {
  const now = look.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  look.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", look.theme); } catch { /* where pages may keep nothing */ }
});
try {
  const kept = localStorage.getItem("theme");
  if (kept === "light" || kept === "dark") look.theme = kept;
} catch { /* as above */ }

fetch("api/about")
  .then((response) => response.json())
  .then(prepare)
  .catch(() => say("The server did not answer: is it still running?"));
