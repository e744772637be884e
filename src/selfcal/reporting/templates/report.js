"use strict";
(() => {
  const numbers = JSON.parse(document.getElementById("numbers").textContent);
  const byId = (id) => document.getElementById(id);
  const slider = byId("threshold"), picker = byId("reject-method"), chart = byId("risk-chart");
  const percent = (fraction, digits = 1) => `${(100 * fraction).toFixed(digits)}%`;
  const count = (n) => n.toLocaleString("en-US");
  const write = (id, text) => { byId(id).textContent = text; };
  const scale = Object.fromEntries(Object.entries(chart.dataset).map(([name, value]) => [name, Number(value)]));
  let at = numbers.methods[0].reject.start;
  const chosen = () => (picker ? Number(picker.value) : 0);

  // what is left at threshold number `at`: all that is lost in later steps
  const left = (cell, at) => cell[2].slice(at).reduce((sum, lost) => sum + lost, 0);

  function place(reject, at) {
    const accepted = reject.accepted[at];
    const x = scale.left + scale.width * accepted / numbers.rows;
    const y = (risk) => scale.base - scale.height * Math.min(risk, 1.02 * scale.top) / scale.top;
    const set = (id, values) => Object.entries(values).forEach(([name, value]) => byId(id).setAttribute(name, value));
    set("rc-marker", { cx: accepted ? x : -20, cy: accepted ? y(reject.errors[at] / accepted) : -20 });
    set("rc-whisker", { x1: accepted ? x : -20, x2: accepted ? x : -20, y1: y(reject.risk_low[at]), y2: y(reject.risk_high[at]) });
    chart.querySelectorAll(".curve").forEach((curve) => curve.classList.toggle("chosen", Number(curve.dataset.method) === chosen()));
  }

  function matrix(reject, at) {
    const counts = new Map(reject.cells.map((cell) => [`${cell[0]},${cell[1]}`, left(cell, at)]));
    const rows = numbers.classes.map((_, i) => numbers.classes.reduce((sum, _, j) => sum + (counts.get(`${i},${j}`) || 0), 0));
    byId("confusion").querySelectorAll("td[data-true]").forEach((cell) => {
      const n = counts.get(`${cell.dataset.true},${cell.dataset.answer}`) || 0;
      cell.textContent = count(n);
      cell.style.setProperty("--part", n ? Math.max(6, Math.round(100 * n / rows[cell.dataset.true])) : 0);
    });
  }

  function pairs(reject, at) {
    if (!byId("pairs")) return;
    const body = byId("pairs").tBodies[0];
    const ranked = reject.cells.map((cell) => ({ cell, n: left(cell, at) })).filter((pair) => pair.n).sort((a, b) => b.n - a.n);
    body.replaceChildren(...ranked.slice(0, Number(body.dataset.shown)).map(({ cell, n }) => {
      const row = document.createElement("tr");
      [numbers.classes[cell[0]], numbers.classes[cell[1]], count(n)].forEach((text) => {
        const inner = document.createElement("bdi");
        inner.textContent = text;
        row.insertCell().append(inner);
      });
      return row;
    }));
  }

  function update() {
    const reject = numbers.methods[chosen()].reject;
    const accepted = reject.accepted[at], errors = reject.errors[at], all = reject.errors[0];
    const threshold = String(reject.thresholds[at]);
    slider.setAttribute("aria-valuetext", `threshold ${threshold}`);
    write("threshold-value", threshold);
    write("coverage", percent(accepted / numbers.rows));
    write("coverage-rows", `${count(accepted)} of ${count(numbers.rows)} ${numbers.rows === 1 ? "row" : "rows"} answered`);
    write("risk", accepted ? percent(errors / accepted, 2) : "none");
    write("risk-rows", accepted
      ? `${count(errors)} wrong; interval ${percent(reject.risk_low[at], 2)} to ${percent(reject.risk_high[at], 2)}`
      : "nothing answered, nothing wrong");
    write("avoided", all ? percent(1 - errors / all) : "none to avoid");
    write("avoided-rows", `${count(all - errors)} of ${count(all)}`);
    place(reject, at);
    if (byId("confusion")) matrix(reject, at); else pairs(reject, at);
  }

  // the scale is the same for every method and every page: pairs of a threshold and its place, with lines between them
  const stops = slider.dataset.scale.split(" ").map((stop) => stop.split(":").map(Number));
  function between(value, from, to) {
    const next = Math.max(1, stops.findIndex((stop) => stop[from] >= value));
    const [low, high] = [stops[next - 1], stops[next]];
    return low[to] + (high[to] - low[to]) * (value - low[from]) / (high[from] - low[from]);
  }
  const grid = () => numbers.methods[chosen()].reject.thresholds;
  const nearest = (place) => grid().reduce(
    (best, t, i) => (Math.abs(between(t, 0, 1) - place) < Math.abs(between(grid()[best], 0, 1) - place) ? i : best), 0);

  function moveTo(index) {
    at = Math.min(Math.max(index, 0), grid().length - 1);
    slider.value = between(grid()[at], 0, 1);
    update();
  }

  slider.addEventListener("input", () => { at = nearest(Number(slider.value)); update(); });
  slider.addEventListener("keydown", (event) => {
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10, Home: -Infinity, End: Infinity };
    if (!(event.key in steps) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    moveTo(at + steps[event.key]);
    slider.dispatchEvent(new Event("change"));
  });
  slider.addEventListener("change", () => write("reject-status", `Coverage ${byId("coverage").textContent}, risk ${byId("risk").textContent}`));
  if (picker) picker.addEventListener("change", () => moveTo(nearest(between(Number(byId("threshold-value").textContent), 0, 1))));
  window.addEventListener("beforeprint", () => document.querySelectorAll("section > details").forEach((part) => { part.open = true; }));
  moveTo(at);
})();
