// Draws the plots when they come into view, and lets readers filter the gallery. Everything it needs is in the page.
"use strict";

const values = JSON.parse(document.getElementById("values").textContent);
const drawn = new Set();

// ---- Colours: plots name variables of the style, which are looked up when they are drawn.

const probe = document.body.appendChild(document.createElement("span"));
probe.hidden = true;

function colour(name) {
  probe.style.color = name;
  return getComputedStyle(probe).color;
}

function coloured(plot) {
  const text = JSON.stringify(plot);
  return JSON.parse(text, (key, value) => (/^var\(--[a-z]+\)$/.test(value) ? colour(value) : value));
}

// ---- Plots

// Plotly is most of the page. As plain text it does not hold the page up; as a file of its own, the browser compiles it
// beside the page when that is idle, or when the first plot comes into view.
let ready = null;

function loadPlotly() {
  ready ??= new Promise((loaded, failed) => {
    const text = document.getElementById("plotly").textContent;
    const script = document.createElement("script");
    script.src = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    script.addEventListener("load", loaded);
    script.addEventListener("error", () => failed(new Error("Plotly could not be loaded")));
    document.head.append(script);
  });
  return ready;
}

async function draw(figure) {
  try {
    await loadPlotly();
  } catch {
    figure.querySelector(".canvas").textContent = "The figure cannot be drawn: the browser did not load Plotly from this page.";
    return;
  }
  plotNow(figure);
}

// With Plotly at hand; on paper in the size that the style gives it there.
function plotNow(figure) {
  const canvas = figure.querySelector(".canvas");
  const choice = figure.querySelector("select");
  const plot = coloured(values.figures[figure.id][choice ? Number(choice.value) : 0]);
  const boxes = figure.closest(".setting").querySelectorAll(".methods input:not(:checked)");
  const hidden = new Set(Array.from(boxes, (box) => box.value));
  plot.data.forEach((trace) => { trace.visible = !hidden.has(trace.meta); });
  // Where fingers scroll the page, a drag must not zoom.
  if (matchMedia("(pointer: coarse)").matches) plot.layout.dragmode = false;
  const options = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };
  if (printing()) Object.assign(plot.layout, { width: canvas.clientWidth, height: canvas.clientHeight });
  Plotly.react(canvas, plot.data, plot.layout, options);
  drawn.add(figure);
}

function redraw() {
  drawn.forEach(draw);
}

// One at a time, each painted before the next is begun: nobody waits for plots further down.
const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));

const sight = new IntersectionObserver(async (entries) => {
  const figures = entries.filter((entry) => entry.isIntersecting).map((entry) => entry.target);
  figures.forEach((figure) => sight.unobserve(figure));
  for (const figure of figures) {
    await draw(figure);
    await painted();
  }
}, { rootMargin: "300px" });

document.querySelectorAll(".plot").forEach((figure) => {
  sight.observe(figure);
  figure.querySelector("select")?.addEventListener("change", () => draw(figure));
});
document.querySelectorAll(".methods").forEach((boxes) => boxes.addEventListener("change", redraw));
// The methods stay in view, but do not cover the text on a point of a plot that begins above them.
function makeWay(event) {
  const [boxes, canvas] = [event.currentTarget.querySelector(".methods"), event.target.closest(".canvas")];
  if (!boxes) return;
  boxes.classList.remove("aside");
  if (canvas && canvas.getBoundingClientRect().top < boxes.getBoundingClientRect().bottom) boxes.classList.add("aside");
}

document.querySelectorAll(".figures").forEach((figures) => {
  ["pointerover", "pointerleave"].forEach((kind) => figures.addEventListener(kind, makeWay));
});

// ---- Light and dark: as the system has it, until a reader decides.

const system = matchMedia("(prefers-color-scheme: dark)");

function chooseTheme(theme) {
  document.documentElement.dataset.theme = theme;
  redraw();
}

document.getElementById("theme").addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light");
  const next = now === "dark" ? "light" : "dark";
  chooseTheme(next);
  try { localStorage.setItem("theme", next); } catch { /* pages of files may have no storage */ }
});
system.addEventListener("change", redraw);
try {
  const kept = localStorage.getItem("theme");
  if (kept === "light" || kept === "dark") chooseTheme(kept);
} catch { /* as above */ }

// ---- Printing: on paper nobody scrolls, and it is white. Plots that were never in view are drawn just before.

const page = document.documentElement;
const printing = () => page.classList.contains("printing");

// Printing does not wait for what is loaded beside the page: a script in the page runs at once.
function loadPlotlyNow() {
  const script = document.createElement("script");
  script.textContent = document.getElementById("plotly").textContent;
  document.head.append(script);
  ready = Promise.resolve();
}

let themeOnScreen;

addEventListener("beforeprint", () => {
  if (printing()) return;
  themeOnScreen = page.dataset.theme;
  page.classList.add("printing");
  page.dataset.theme = "light";
  if (!window.Plotly) loadPlotlyNow();
  document.querySelectorAll(".plot").forEach((figure) => {
    sight.unobserve(figure);
    plotNow(figure);
  });
});

addEventListener("afterprint", () => {
  if (!printing()) return;
  page.classList.remove("printing");
  if (themeOnScreen) page.dataset.theme = themeOnScreen;
  else delete page.dataset.theme;
  drawn.forEach((figure) => {
    plotNow(figure);
    Plotly.Plots.resize(figure.querySelector(".canvas"));
  });
});

// ---- The gallery

const PAGE = 24;
const SVG = "http://www.w3.org/2000/svg";

function add(parent, tag, text, look) {
  const element = parent.appendChild(document.createElement(tag));
  if (text) element.textContent = text;
  if (look) element.className = look;
  return element;
}

function shape(parent, tag, attributes, text) {
  const element = parent.appendChild(document.createElementNS(SVG, tag));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  return element;
}

// To two digits; where that would make it as large as the threshold, it is below it in words.
function inWords(p, certain, threshold) {
  if (p < 0.001) return "< 0.001";
  const shown = Number(p.toPrecision(2));
  return certain && shown >= threshold ? `< ${threshold}` : `= ${shown}`;
}

// Probabilities from 0 to 1 over the classes; a box is a class and five numbers in thousandths.
function boxPlots(parent, card, classes) {
  const names = card.boxes.map((box) => classes[box[0]]);
  const long = Math.max(...names.map((name) => name.length));
  const slanted = long > 2;
  const left = 22, right = 276, top = 6, bottom = 96;
  const height = bottom + (slanted ? 10 + 4.2 * long : 16);
  const svg = shape(parent, "svg", { viewBox: `0 0 280 ${height}`, role: "img" });
  const likely = card.boxes.filter((box) => box[3] >= 10).map((box) => `${classes[box[0]]} ${box[3] / 1000}`);
  svg.setAttribute("aria-label", `Box plots of class probabilities; medians: ${likely.join(", ") || "all below 0.01"}`);
  const y = (value) => bottom - (bottom - top) * value;
  for (const value of [0, 0.5, 1]) {
    shape(svg, "line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "grid" });
    shape(svg, "text", { x: left - 4, y: y(value) + 3.5, "text-anchor": "end" }, String(value));
  }
  const step = (right - left) / card.boxes.length;
  const half = Math.min(step * 0.32, 12);
  card.boxes.forEach(([index, ...numbers], place) => {
    const [low, quarter, median, three, high] = numbers.map((number) => y(number / 1000));
    const x = left + step * (place + 0.5);
    shape(svg, "line", { x1: x, x2: x, y1: low, y2: high, class: "whisker" });
    shape(svg, "rect", { x: x - half, y: three, width: 2 * half, height: quarter - three, class: "box" });
    shape(svg, "line", { x1: x - half, x2: x + half, y1: median, y2: median, class: "median" });
    const look = index === card.truth ? { class: "true" } : {};
    const turn = slanted ? { "text-anchor": "end", transform: `rotate(-35 ${x} ${bottom + 10})` } : { "text-anchor": "middle" };
    shape(svg, "text", { x, y: bottom + (slanted ? 10 : 13), ...turn, ...look }, names[place]);
  });
}

async function gallery(element, data) {
  const form = element.querySelector("form");
  const list = element.querySelector(".cards");
  const more = element.querySelector(".more");
  let found = [], shown = 0;

  function tile(parent, sheet, card, words) {
    const canvas = add(parent, "canvas");
    const [height, width] = data.size;
    Object.assign(canvas, { width, height });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", words);
    canvas.title = words;
    const x = (card.tile % data.columns) * width, y = Math.floor(card.tile / data.columns) * height;
    canvas.getContext("2d").drawImage(sheet, x, y, width, height, 0, 0, width, height);
  }

  function showCard(card) {
    const method = data.methods[card.method];
    const item = add(list, "article", "", "card");
    item.style.setProperty("--method", method.colour);
    const top = add(item, "div", "", "top");
    const truth = data.classes[card.truth] ?? "something else";
    tile(top, sheets.images, card, `Test example ${card.example}, class ${truth}`);
    if (sheets.noisy) tile(top, sheets.noisy, card, `Test example ${card.example} with its noise`);
    const words = add(top, "div", "", "words");
    if (card.text) add(words, "div", card.text, "question");
    const answer = card.right ? "right" : `wrong, is ${truth}`;
    add(words, "div", `${data.classes[card.answer]}: ${answer}`, `verdict ${card.right ? "right" : "wrong"}`);
    add(words, "div", `p ${inWords(card.p, card.certain, data.threshold)}, ${card.certain ? "certain" : "not certain"}`);
    const by = add(words, "div", "", "by");
    add(by, "span", "", "dot");
    by.append(method.label);
    boxPlots(item, card, data.classes);
  }

  function showMore() {
    found.slice(shown, shown + PAGE).forEach(showCard);
    shown = Math.min(shown + PAGE, found.length);
    more.hidden = shown === found.length;
    element.querySelector(".count").textContent = found.length
      ? `${shown} of ${found.length} examples that this page keeps`
      : "The page keeps no such example: choose “all” in some of the filters.";
  }

  function fits(card, wanted) {
    const [low, high] = wanted.p ? wanted.p.split(",").map(Number) : [0, 2];
    return (!wanted.kind || card.kinds.includes(wanted.kind))
      && (!wanted.method || card.method === Number(wanted.method))
      && (!wanted.truth || card.truth === Number(wanted.truth))
      && (!wanted.answer || card.right === (wanted.answer === "right"))
      && card.p >= low && card.p < high;
  }

  // How far an example is from the most uncertain, or from the most certain one: by p-value, then by confidence.
  const striking = {
    uncertain: (a, b) => b.p - a.p || a.confidence - b.confidence,
    certain: (a, b) => a.p - b.p || b.confidence - a.confidence,
  };

  const keys = {
    place: () => 0,
    p: (card) => card.p,
    confidence: (card) => card.confidence,
    truth: (card) => card.truth,
    method: (card) => card.method,
    right: (card) => Number(card.right),
  };

  function update() {
    const wanted = Object.fromEntries(new FormData(form));
    const [name, direction] = wanted.sort.split("-");
    const sign = direction === "up" ? 1 : -1;
    const rest = ["certain", "wrong"].includes(wanted.kind) ? striking.certain : striking.uncertain;
    found = data.cards.filter((card) => fits(card, wanted))
      .sort((a, b) => sign * (keys[name](a) - keys[name](b)) || rest(a, b) || a.example - b.example);
    shown = 0;
    list.replaceChildren();
    showMore();
  }

  const sheets = {};
  for (const name of ["images", "noisy"]) {
    if (!data[name]) continue;
    sheets[name] = new Image();
    sheets[name].src = data[name];
    await sheets[name].decode();
  }
  form.addEventListener("change", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => {
    const place = shown;
    showMore();
    list.children[place]?.scrollIntoView({ block: "nearest" });
  });
  update();
}

const shown = Object.entries(values.galleries).map(([id, data]) => gallery(document.getElementById(id), data));
Promise.all(shown).finally(() => (window.requestIdleCallback ?? setTimeout)(() => loadPlotly().catch(() => {})));
