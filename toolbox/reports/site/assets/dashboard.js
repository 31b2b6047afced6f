"use strict";
// Filters the cells, and draws the charts with uPlot. Text is never parsed as HTML. Without this script the tables of
// the pages show the same numbers.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const make = (tag, attributes, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const number = (value) => (value === null ? "" : String(Number(value.toPrecision(5))));
  const day = (seconds) => new Date(seconds * 1000).toISOString().slice(0, 10);
  const minute = (seconds) => `${new Date(seconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC`;

  const unscripted = document.getElementById("unscripted");
  if (unscripted) unscripted.hidden = true;

  // The filter. The address contains its state: #cell=TEXT&show=STATE.
  const form = document.getElementById("filter");
  if (form) {
    const [text, state] = [document.getElementById("text"), document.getElementById("state")];
    const rows = [...document.querySelectorAll("[data-states]")].map((row) => ({
      row, name: row.querySelector("a").textContent.toLowerCase(), states: row.dataset.states.split(" ").filter(Boolean),
    }));
    const cells = new Set(rows.map(({ row }) => row.querySelector("a").href)).size;
    const filter = () => {
      const shown = new Set();
      for (const { row, name, states } of rows) {
        const hasState = state.value === "any" ? states.length > 0 : !state.value || states.includes(state.value);
        row.hidden = !hasState || !name.includes(text.value.toLowerCase());
        if (!row.hidden) shown.add(row.querySelector("a").href);
      }
      document.getElementById("shown").textContent = shown.size === cells ? "" : `${shown.size} of ${cells} cells`;
    };
    const read = () => {
      const parts = new URLSearchParams(location.hash.slice(1));
      text.value = parts.get("cell") || "";
      state.value = parts.get("show") || "";
      if (state.selectedIndex < 0) state.value = "";
      filter();
    };
    form.hidden = false;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => {
      filter();
      const parts = new URLSearchParams();
      if (text.value) parts.set("cell", text.value);
      if (state.value) parts.set("show", state.value);
      history.replaceState(null, "", `#${parts}`);
    });
    window.addEventListener("hashchange", read);
    read();
  }

  // The charts.
  const font = "12px system-ui, sans-serif";
  const axis = (more) => ({
    stroke: () => colour("quiet"), font, ticks: { show: false },
    grid: { stroke: () => colour("line"), width: 1 }, ...more,
  });
  const times = axis({
    space: 70,
    values: [
      [31536000, "{YYYY}", null, null, null, null, null, null, 1],
      [2419200, "{MMM}", "\n{YYYY}", null, null, null, null, null, 1],
      [86400, "{D} {MMM}", "\n{YYYY}", null, null, null, null, null, 1],
      [60, "{HH}:{mm}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
      [1, "{HH}:{mm}:{ss}", "\n{D} {MMM} {YYYY}", null, "\n{D} {MMM}", null, null, null, 1],
    ],
  });
  // For a single value uPlot would choose a range of years. An axis of less than a minute would repeat its labels.
  const ends = (plot, low, high) => (plot.data[0].length === 1 ? [plot.data[0][0], plot.data[0][0]] : [low, high]);
  const span = (plot, low, high) => {
    const [first, last] = ends(plot, low, high);
    const more = Math.max(0, 60 - (last - first)) / 2;
    return [first - more, last + more];
  };
  const amounts = axis({ size: 64, values: (_, splits) => splits.map((value) => number(value)) });

  const metric = (chart) => {
    const size = chart.values.length;
    const [begin, lower, upper, isInForce] = chart.band || [size, null, null, false];
    const level = new Array(size).fill(null);
    chart.levels.forEach(([at, value], place) => {
      const end = place + 1 < chart.levels.length ? chart.levels[place + 1][0] : size;
      level.fill(value, at, end);
    });
    const outside = new Map(chart.outside.map(([at, isAbove, isGood]) => [at, [isAbove, isGood]]));
    const only = (isGood) => chart.values.map((value, at) => (outside.has(at) && outside.get(at)[1] === isGood ? value : null));
    const x = chart.at.map((place) => data.times[place]);
    const band = (plot) => {
      if (begin >= size) return;
      const { ctx, bbox } = plot;
      const top = upper === null ? bbox.top : Math.max(bbox.top, plot.valToPos(upper, "y", true));
      const bottom = lower === null ? bbox.top + bbox.height : Math.min(bbox.top + bbox.height, plot.valToPos(lower, "y", true));
      const left = Math.min(bbox.left + bbox.width, Math.max(bbox.left, plot.valToPos(x[begin], "x", true)));
      if (bottom <= top) return;
      ctx.save();
      ctx.fillStyle = colour(isInForce ? "passed-tint" : "skipped-tint");
      ctx.fillRect(left, top, bbox.left + bbox.width - left, bottom - top);
      ctx.strokeStyle = colour(isInForce ? "passed" : "quiet");
      ctx.lineWidth = devicePixelRatio;
      if (!isInForce) ctx.setLineDash([4 * devicePixelRatio, 3 * devicePixelRatio]);
      for (const [bound, at] of [[upper, top], [lower, bottom]]) {
        if (bound === null) continue;
        ctx.beginPath();
        ctx.moveTo(left, at);
        ctx.lineTo(bbox.left + bbox.width, at);
        ctx.stroke();
      }
      ctx.restore();
    };
    const changes = (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
      ctx.textBaseline = "top";
      for (const [at, isConfirmed, isWorse, percent] of chart.changes) {
        const left = plot.valToPos(x[at], "x", true);
        if (left < bbox.left || left > bbox.left + bbox.width) continue;
        ctx.strokeStyle = ctx.fillStyle = colour(isWorse === null ? "quiet" : isWorse ? "failed" : "passed");
        ctx.setLineDash((isConfirmed ? [6, 4] : [2, 4]).map((length) => length * devicePixelRatio));
        ctx.beginPath();
        ctx.moveTo(left, bbox.top);
        ctx.lineTo(left, bbox.top + bbox.height);
        ctx.stroke();
        if (percent === null) continue;
        const label = `${percent > 0 ? "+" : ""}${percent.toFixed(1)} %${isConfirmed ? "" : " ?"}`;
        const isRight = left + ctx.measureText(label).width + 8 * devicePixelRatio > bbox.left + bbox.width;
        ctx.textAlign = isRight ? "right" : "left";
        ctx.fillText(label, left + (isRight ? -4 : 4) * devicePixelRatio, bbox.top + 3 * devicePixelRatio);
      }
      ctx.restore();
    };
    const range = (_, low, high) => {
      const limits = [low, high, begin < size ? lower : null, begin < size ? upper : null].filter((value) => value !== null);
      const [least, most] = [Math.min(...limits), Math.max(...limits)];
      const margin = (most - least || Math.abs(most) || 1) * 0.08;
      return [least - margin, most + margin * 1.6];
    };
    const rings = (name) => ({
      stroke: () => colour(name), width: 0, paths: () => null,
      points: { show: true, size: 9, width: 2, fill: "transparent" },
    });
    const bounded = (at) => {
      if (outside.has(at)) {
        const [isAbove, isGood] = outside.get(at);
        return `, ${isAbove ? "above" : "below"} its bounds${isGood ? ", which is better" : ""}`;
      }
      return at >= begin ? ", within its bounds" : "";
    };
    return {
      data: [x, chart.values, level, only(false), only(true)],
      height: 260,
      options: {
        scales: { x: { range: span }, y: { range } },
        axes: [times, amounts],
        series: [
          {},
          { stroke: () => colour("accent"), width: 1, points: { size: 4, fill: () => colour("accent"), width: 0 } },
          { stroke: () => colour("ink"), width: 2, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }) },
          rings("failed"),
          rings("passed"),
        ],
        hooks: { drawClear: [band], draw: [changes] },
      },
      describe: (at) => {
        const [run, revision] = data.runs[chart.at[at]];
        return `${minute(x[at])}: ${number(chart.values[at])} ${chart.unit}${bounded(at)}. Run ${run}${revision ? `, revision ${revision}` : ""}`;
      },
    };
  };
  const days = (plot, low, high) => {
    const [first, last] = ends(plot, low, high);
    return [Math.min(first, last - 29 * 86400) - 43200, last + 43200];
  };
  const cost = (chart) => ({
    data: [chart.times, chart.values],
    height: 170,
    options: {
      scales: {
        x: { range: days },
        y: { range: (_, low, high) => [0, (high || 1) * 1.08] },
      },
      axes: [times, amounts],
      series: [
        {},
        {
          fill: () => colour("accent"), width: 0, points: { show: false },
          paths: uPlot.paths.bars({ size: [0.8, chart.times.length === 1 ? 12 : 40] }),
        },
      ],
    },
    describe: (at) => `${day(chart.times[at])}: ${chart.values[at].toFixed(2)} ${chart.unit}`,
  });

  const draw = (box) => {
    const chart = data.charts[box.dataset.chart];
    const { data: values, height, options, describe } = chart.kind === "cost" ? cost(chart) : metric(chart);
    const output = make("output", { "aria-live": "polite" }, describe(values[0].length - 1));
    const plain = make("div", {
      class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart",
      "aria-label": `${box.dataset.label}, ${values[0].length} values. The arrow keys move from value to value.`,
    });
    box.append(plain, output);
    const show = (plot) => {
      const at = plot.cursor.idx;
      output.textContent = describe(at === null || at === undefined ? values[0].length - 1 : at);
    };
    const plot = new uPlot({
      width: plain.clientWidth, height, legend: { show: false }, ms: 1e-3,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
      cursor: { y: false, points: { size: 8 } },
      padding: [8, 30, 0, 0],
      ...options,
      hooks: { ...options.hooks, setCursor: [show] },
    }, values, plain);
    plain.addEventListener("keydown", (event) => {
      const last = values[0].length - 1;
      const at = plot.cursor.idx;
      const isNowhere = at === null || at === undefined;
      const next = { ArrowLeft: isNowhere ? last : at - 1, ArrowRight: isNowhere ? 0 : at + 1, Home: 0, End: last }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      const place = Math.max(0, Math.min(last, next));
      plot.setCursor({ left: plot.valToPos(values[0][place], "x"), top: plot.valToPos(values[1][place], "y") });
    });
    new ResizeObserver(() => {
      if (plain.clientWidth) plot.setSize({ width: plain.clientWidth, height });
    }).observe(plain);
    return plot;
  };
  // A page may have many charts, so each chart is drawn only when it comes near the visible part of the page.
  const plots = [];
  const seen = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      seen.unobserve(target);
      plots.push(draw(target));
    }
  }, { rootMargin: "400px" });
  for (const box of document.querySelectorAll("[data-chart]")) {
    box.hidden = false;
    seen.observe(box);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const plot of plots) plot.redraw();
  });
})();
