"use strict";
// Arranges the grid by any two axes, filters the cells, and keeps both choices in the address. Text is never parsed as
// HTML. Without this script the page shows the grid of the first two axes, and all cells.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const make = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const cells = data.cells;
  const details = new Map();
  for (const body of document.querySelectorAll(".step > .body")) details.set(body.id, body.parentElement);
  const boxes = [...document.querySelectorAll("input[name=verdict]")];
  const fresh = () => ({ rows: data.chosen[0], columns: data.chosen[1], hidden: new Set(), text: "", at: "" });
  let state = fresh();
  let laidOut = String(data.chosen);

  // The address is #STEP&down=AXIS&across=AXIS&without=VERDICT,VERDICT&text=TEXT. Parts with default values are omitted.
  const address = () => {
    const parts = new URLSearchParams();
    if (String([state.rows, state.columns]) !== String(data.chosen)) {
      parts.set("down", data.axes[state.rows].name);
      parts.set("across", state.columns === null ? "" : data.axes[state.columns].name);
    }
    if (state.hidden.size) parts.set("without", [...state.hidden].join(","));
    if (state.text) parts.set("text", state.text);
    return "#" + [state.at, parts.toString()].filter(Boolean).join("&");
  };
  const read = () => {
    state = fresh();
    const [first, ...rest] = location.hash.slice(1).split("&");
    const isStep = first && !first.includes("=");
    if (isStep) state.at = first;
    const parts = new URLSearchParams((isStep ? rest : [first, ...rest]).join("&"));
    const axis = (name) => data.axes.findIndex((each) => each.name === name);
    if (parts.has("down") && axis(parts.get("down")) >= 0) {
      state.rows = axis(parts.get("down"));
      const across = axis(parts.get("across"));
      state.columns = across < 0 ? null : across;
    }
    const verdicts = new Set(boxes.map((box) => box.value));
    state.hidden = new Set((parts.get("without") || "").split(",").filter((key) => verdicts.has(key)));
    state.text = parts.get("text") || "";
  };
  const remember = () => history.replaceState(null, "", address());

  const matches = ([, name, verdict]) =>
    !state.hidden.has(verdict) && name.toLowerCase().includes(state.text.toLowerCase());

  const chip = ([anchor, name, verdict, place], rest, isLabelled) => {
    const [symbol, word] = data.marks[verdict];
    const labels = rest.filter((axis) => place[axis] >= 0).map((axis) => data.axes[axis].values[place[axis]]);
    const text = isLabelled ? labels.join(", ") || word : "";
    const node = make("a", { class: `chip v-${verdict}`, href: `#${anchor}`, "data-step": anchor, title: `${name}: ${word}` });
    node.append(make("span", { "aria-hidden": "true" }, symbol), ` ${text}`);
    if (text !== word) node.append(make("span", { class: "hidden" }, text ? ` ${word}` : ` ${name}: ${word}`));
    return node;
  };
  // The link to a file about the cell, such as its executed notebook.
  const direct = ([anchor, , , , target]) => {
    const [name, href, isBad, what] = target;
    const title = `${what}${isBad ? ", which did not pass" : ""}`;
    const text = name.length > 30 ? `${name.slice(0, 29)}…` : name;
    const link = make("a", { class: "direct", "data-of": anchor, href, title }, isBad ? text : "");
    if (!isBad) link.append(make("span", { "aria-hidden": "true" }, "↗"), make("span", { class: "hidden" }, ` ${text}`));
    return link;
  };
  const layOut = () => {
    const [down, across] = [data.axes[state.rows], state.columns === null ? null : data.axes[state.columns]];
    const width = across ? across.values.length : 1;
    const isTooLarge = down.values.length * width > data.boxes;
    byId("grid-note").textContent = isTooLarge ? "With these two axes the table is too large: choose other axes." : "";
    if (isTooLarge) return;
    laidOut = String([state.rows, state.columns]);
    const rest = data.axes.map((_, axis) => axis)
      .filter((axis) => axis !== state.rows && axis !== state.columns && data.axes[axis].values.length > 1);
    const table = down.values.map(() => Array.from({ length: width }, () => []));
    for (const cell of cells) {
      const row = table[cell[3][state.rows]];
      const box = row && row[across ? cell[3][state.columns] : 0];
      if (box) box.push(cell);
    }
    const head = make("tr", {}, make("th", { scope: "col" },
      make("span", { class: "axis" }, across ? `${down.name} ↓ ${across.name} →` : `${down.name} ↓`)));
    for (const value of across ? across.values : ["cells"]) head.append(make("th", { scope: "col" }, value));
    const body = make("tbody", {});
    table.forEach((row, index) => {
      const line = make("tr", {}, make("th", { scope: "row" }, down.values[index]));
      for (const box of row) {
        const isLabelled = box.length <= data.labelled;
        const links = (cell) => [chip(cell, rest, isLabelled), " ", ...(cell[4] && isLabelled ? [direct(cell), " "] : [])];
        const chips = box.flatMap(links);
        line.append(make("td", {}, ...chips));
      }
      body.append(line);
    });
    byId("grid").replaceChildren(make("thead", {}, head), body);
  };
  const filter = () => {
    const shown = new Set(cells.filter(matches).map((cell) => cell[0]));
    for (const [anchor] of cells) details.get(anchor).hidden = !shown.has(anchor);
    for (const link of document.querySelectorAll("#grid .chip")) link.hidden = !shown.has(link.dataset.step);
    for (const link of document.querySelectorAll("#grid .direct")) link.hidden = !shown.has(link.dataset.of);
    for (const row of document.querySelectorAll("tr[data-cell]")) row.hidden = !shown.has(row.dataset.cell);
    byId("shown").textContent = shown.size === cells.length ? "" : `${shown.size} of ${cells.length} cells`;
  };
  const show = () => {
    if (data.axes.length) {
      byId("rows").value = state.rows;
      byId("columns").value = state.columns === null ? "" : state.columns;
      if (laidOut !== String([state.rows, state.columns])) layOut();
    }
    for (const box of boxes) box.checked = !state.hidden.has(box.value);
    if (byId("text")) byId("text").value = state.text;
    if (cells.length) filter();
  };
  // Go to a step or to another part of the page. A step is unfolded, and shown even if the filter hides it.
  const go = (anchor) => {
    const step = details.get(anchor);
    if (step) [step.hidden, step.open] = [false, true];
    const target = step ? step.querySelector("summary") : byId(anchor);
    if (!target) return;
    if (!step) target.tabIndex = -1;
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "start" });
  };

  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-step], a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    state.at = link.dataset.step || link.getAttribute("href").slice(1);
    history.pushState(null, "", address());
    go(state.at);
  });
  for (const form of document.querySelectorAll("form")) {
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
  }
  if (data.axes.length) {
    const choose = () => {
      state.rows = Number(byId("rows").value);
      state.columns = byId("columns").value === "" ? null : Number(byId("columns").value);
      if (state.columns === state.rows) state.columns = null;
      show();
      remember();
    };
    byId("rows").addEventListener("change", choose);
    byId("columns").addEventListener("change", choose);
  }
  for (const box of boxes) box.addEventListener("change", () => {
    state.hidden = new Set(boxes.filter((each) => !each.checked).map((each) => each.value));
    filter();
    remember();
  });
  if (byId("text")) byId("text").addEventListener("input", (event) => {
    state.text = event.target.value;
    filter();
    remember();
  });
  if (byId("open")) {
    byId("open").addEventListener("click", () => {
      for (const step of document.querySelectorAll(".step.bad")) step.open = true;
    });
    byId("close").addEventListener("click", () => {
      for (const step of document.querySelectorAll(".step[open]")) step.open = false;
    });
  }
  if (byId("changed-only")) byId("changed-only").addEventListener("change", (event) => {
    byId("code").classList.toggle("changed-only", event.target.checked);
  });
  // The test cases of a cell are shown page by page, because there may be thousands.
  const mostTests = 100;
  for (const part of document.querySelectorAll("details[data-cases]")) {
    const { suites, rows } = data.cases[part.dataset.cases];
    const [body, output] = [part.querySelector("tbody"), part.querySelector("output")];
    let [first, text] = [0, ""];
    const element = (name, content, kind) => {
      const made = document.createElement(name);
      made.textContent = content;
      if (kind) made.className = kind;
      return made;
    };
    const row = ([suite, name, outcome, seconds]) => {
      const [key, symbol, word] = data.outcomes[outcome];
      const made = document.createElement("tr");
      const test = document.createElement("th");
      test.scope = "row";
      if (suites[suite]) test.append(element("span", `${suites[suite]}.`, "suite"), document.createElement("wbr"));
      test.append(element("span", name, "name"));
      const took = seconds === null ? "" : `${seconds.toFixed(3)} s`;
      made.append(test, element("td", `${symbol} ${word}`, `v-${key}`), element("td", took, "number"));
      return made;
    };
    const fill = () => {
      const found = rows.filter(([suite, name, outcome]) =>
        `${suites[suite]}.${name} ${data.outcomes[outcome][2]}`.toLowerCase().includes(text));
      first = Math.max(0, Math.min(first, found.length - 1));
      first -= first % mostTests;
      const last = Math.min(found.length, first + mostTests);
      body.replaceChildren(...found.slice(first, last).map(row));
      output.textContent = found.length ? `${first + 1} to ${last} of ${found.length}` : "no test has this text";
      for (const button of part.querySelectorAll("button")) {
        button.disabled = button.value === "1" ? last === found.length : first === 0;
        button.hidden = found.length <= mostTests;
      }
    };
    part.addEventListener("toggle", () => { if (part.open) fill(); });
    part.querySelector("input").addEventListener("input", (event) => {
      [first, text] = [0, event.target.value.toLowerCase()];
      fill();
    });
    for (const button of part.querySelectorAll("button")) button.addEventListener("click", () => {
      first += Number(button.value) * mostTests;
      fill();
    });
  }
  const follow = () => {
    read();
    show();
    if (state.at) go(state.at);
  };
  window.addEventListener("popstate", follow);
  follow();
})();
