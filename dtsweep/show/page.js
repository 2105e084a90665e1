// The page in a browser: draws plots, sorts and filters the table of points, links selections.
// All numbers are computed before; nothing here analyses anything. Nothing is loaded.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const STATE = `dtsweep ${data.place}`;
  const PHONE = 560; // CSS pixels; narrower plots have fewer ticks.
  const LABEL = 17; // Characters of a label at the side of a narrow plot.
  const NAME = 42; // Characters of a name in a legend.
  const rows = Array.from(document.querySelectorAll("#table tbody tr"));
  const rowOf = new Map(data.ids.map((id, place) => [id, rows[place]]));
  // Settings are found as the page writes points, too: workers=2.
  const texts = rows.map((row, place) => [
    row.textContent, ...data.filters.map((values, number) => `${data.settings[number]}=${values[place]}`),
  ].join(" ").toLowerCase());
  const plots = new Map(); // By name, once they are unpacked.
  const drawn = new Map(); // Plots that have been drawn, by name: their elements.
  const chosen = new Set(); // Ids of selected points.
  let kept = new Set(data.ids); // Ids of points that the filters let through.
  let sorting = { column: -1, isDown: false };

  // --- State across reloads ---

  function stored() {
    try {
      return JSON.parse(sessionStorage.getItem(STATE) ?? "{}");
    } catch {
      return {}; // Storage is switched off, as it may be for files.
    }
  }

  function storeState() {
    const fields = {};
    for (const field of document.querySelectorAll("#filters input, #filters select")) {
      fields[field.id] = field.value;
    }
    const state = {
      fields, sorting, chosen: [...chosen], theme: root.dataset.theme ?? "",
      scroll: window.scrollY, focus: document.activeElement?.id ?? "",
      opened: Array.from(document.querySelectorAll("details"), (one) => one.open),
    };
    try {
      sessionStorage.setItem(STATE, JSON.stringify(state));
    } catch {
      // Without storage a reload begins again at the top.
    }
  }

  function restoreState(state) {
    for (const [id, value] of Object.entries(state.fields ?? {})) {
      const field = byId(id);
      if (field) field.value = value;
      // A choice that has left the page chooses nothing.
      if (field && field.value !== value) field.value = field.options?.[0]?.value ?? "";
    }
    for (const id of state.chosen ?? []) {
      if (rowOf.has(id)) chosen.add(id);
    }
    document.querySelectorAll("details").forEach((one, place) => {
      one.open = state.opened?.[place] ?? one.open;
    });
    if (state.sorting && state.sorting.column >= 0) sortBy(state.sorting.column, state.sorting.isDown);
  }

  // --- Theme ---

  const prefersDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : prefersDark.matches);
  const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();

  function setTheme(theme) {
    if (theme) root.dataset.theme = theme;
    byId("theme").textContent = isDark() ? "Light theme" : "Dark theme";
  }

  function redrawAll() {
    for (const name of drawn.keys()) draw(name);
  }

  // --- Plots ---

  // Colours of traces as the dark theme has them; other values stay.
  function themed(value) {
    // Two more digits of a colour are its opacity.
    if (/^#[\dA-F]{8}$/i.test(value)) return themed(value.slice(0, 7)) + value.slice(7);
    if (typeof value === "string") return (isDark() && data.dark[value]) || value;
    if (Array.isArray(value)) return value.length && typeof value[0] === "number" ? value : value.map(themed);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, themed(inner)]));
  }

  const STYLED = ["line", "marker", "error_x", "error_y", "textfont", "fillcolor"];

  function themedTrace(trace) {
    const copy = { ...trace };
    if (copy.name) copy.name = cut(copy.name, NAME);
    for (const key of STYLED) if (key in copy) copy[key] = themed(copy[key]);
    if (trace.ids) copy.unselected = { marker: { opacity: 0.1 } };
    return copy;
  }

  // A label with its beginning and its end; an entity counts as one character.
  function cut(label, most) {
    const characters = label.match(/&[^;\s]+;|./gu) ?? [];
    if (characters.length <= most) return label;
    const end = Math.floor((most - 1) * 0.6);
    return `${characters.slice(0, most - 1 - end).join("")}…${characters.slice(-end).join("")}`;
  }

  // Labels of bars where there is little room; the hover text and the table have all of each.
  function shortLabels(axis) {
    const short = { ...axis, title: { text: "" } };
    if (axis.ticktext?.some((label) => label.length > LABEL)) {
      short.ticktext = axis.ticktext.map((label) => cut(label, LABEL));
    }
    return short;
  }

  // Fewer ticks where there is little room: every second, third … of the given ones.
  function thinned(axis, most) {
    if (!axis.tickvals || axis.tickvals.length <= most) return { nticks: most };
    const every = Math.ceil(axis.tickvals.length / most);
    const some = (values) => values?.filter((_, place) => place % every === 0);
    return { tickvals: some(axis.tickvals), ticktext: some(axis.ticktext) };
  }

  function themedAxis(axis, most) {
    return {
      ...axis,
      ...(most && axis.type !== "category" ? thinned(axis, most) : {}),
      gridcolor: colour("line"), linecolor: colour("soft"), zerolinecolor: colour("line"),
      tickcolor: colour("soft"), automargin: true,
    };
  }

  function layoutOf(plot, width) {
    const isNarrow = width < PHONE;
    const layout = { ...themed(plot.layout) };
    for (const name of ["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d/.test(key))]) {
      const isAcross = name.startsWith("x");
      layout[name] = themedAxis(layout[name] ?? {}, isAcross && isNarrow ? 4 : 0);
      if (!isAcross && isNarrow && layout[name].ticktext) layout[name] = shortLabels(layout[name]);
    }
    return {
      ...layout, height: undefined,
      ...(root.dataset.print ? { width } : {}),
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colour("ink"), size: isNarrow ? 11 : 12, family: getComputedStyle(document.body).fontFamily },
      legend: { ...layout.legend, bgcolor: "rgba(0,0,0,0)", font: { color: colour("ink"), size: isNarrow ? 10 : 12 } },
      hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("soft"), font: { color: colour("ink") }, align: "left" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("soft"), activecolor: colour("link") },
      margin: { l: 50, r: 12, t: 24, b: 40, ...layout.margin },
      dragmode: matchMedia("(pointer: coarse)").matches ? false : (layout.dragmode ?? "select"),
      newselection: { line: { color: colour("link") } },
      uirevision: plot.name,
    };
  }

  // Gives a plot its height before it is drawn, so that nothing moves then.
  function size(plot) {
    const element = byId(`${plot.name}-plot`);
    // That of the first screen has a height of its own.
    if (!element.closest(".first")) element.style.height = `${plot.layout.height}px`;
  }

  const CONFIG = {
    responsive: true, displaylogo: false,
    modeBarButtons: [["select2d", "lasso2d", "zoom2d", "pan2d", "resetScale2d"]],
  };

  function draw(name) {
    const element = byId(`${name}-plot`);
    const plot = plots.get(name);
    size(plot);
    const isNew = !drawn.has(name);
    drawn.set(name, element);
    const layout = layoutOf(plot, element.clientWidth);
    return Plotly.react(element, plot.traces.map(themedTrace), layout, CONFIG).then(() => {
      if (isNew) listen(name, element);
      // A second drawing for the same look would take half as long as the first.
      if (isRestricted() || !isNew) highlight(name);
      element.classList.add("drawn");
    });
  }

  // Links a plot to the selection.
  function listen(name, element) {
    const idOf = (point) => plots.get(name).traces[point.curveNumber].ids?.[point.pointNumber];
    const idsAt = (event) => (event?.points ?? []).map(idOf).filter((id) => rowOf.has(id));
    element.on("plotly_click", (event) => {
      const keys = event.event ?? {};
      choose(idsAt(event).slice(0, 1), { adds: keys.shiftKey || keys.ctrlKey || keys.metaKey });
    });
    element.on("plotly_selected", (event) => {
      if (event?.points) choose(idsAt(event), { adds: false, isArea: true });
    });
    element.on("plotly_deselect", () => clearChosen());
  }

  const isRestricted = () => chosen.size > 0 || kept.size < data.ids.length;
  const isLit = (id) => !rowOf.has(id) || (kept.has(id) && (chosen.size === 0 || chosen.has(id)));

  // Makes the points of a plot faint that are not selected, or that the filters leave out.
  function highlight(name) {
    const element = drawn.get(name);
    const plot = plots.get(name);
    const linked = plot.traces.map((trace, place) => [trace, place]).filter(([trace]) => trace.ids);
    if (!linked.length) return;
    const indices = linked.map(([trace]) =>
      (isRestricted() ? trace.ids.flatMap((id, place) => (isLit(id) ? [place] : [])) : null));
    const changes = { selectedpoints: indices };
    // Plotly makes marks faint by itself, but neither lines nor error bars.
    if (linked.some(([trace]) => trace.mode?.includes("lines"))) {
      changes["line.color"] = linked.map(([trace]) =>
        (isRestricted() ? colour("faint") : themed(trace.line?.color ?? null)));
    }
    for (const bar of ["error_x", "error_y"]) {
      if (!linked.some(([trace]) => trace[bar])) continue;
      for (const end of ["array", "arrayminus"]) {
        changes[`${bar}.${end}`] = linked.map(([trace]) => trace[bar]?.[end].map((length, place) =>
          (isLit(trace.ids[place]) ? length : null)) ?? null);
      }
    }
    Plotly.restyle(element, changes, linked.map(([, place]) => place));
    if (chosen.size === 0 && element.layout.selections?.length) Plotly.relayout(element, { selections: [] });
  }

  // --- Selection ---

  function choose(ids, { adds, isArea = false }) {
    if (!ids.length && !isArea) return;
    const isOnlyOne = ids.length === 1 && chosen.size === 1 && chosen.has(ids[0]);
    if (!adds) chosen.clear();
    for (const id of ids) {
      if (adds && chosen.has(id)) chosen.delete(id);
      else if (!isOnlyOne || isArea) chosen.add(id);
    }
    update();
  }

  function clearChosen() {
    chosen.clear();
    update();
  }

  function update() {
    for (const [id, row] of rowOf) {
      const isChosen = chosen.has(id);
      row.classList.toggle("chosen", isChosen);
      row.querySelector("input").checked = isChosen;
    }
    byId("selected").textContent = chosen.size ? `${chosen.size} of ${data.ids.length} points selected` : "";
    byId("clear").hidden = chosen.size === 0;
    for (const name of drawn.keys()) highlight(name);
  }

  // --- Table of points ---

  function filterRows() {
    const words = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const choices = Array.from(document.querySelectorAll("[data-choice]"), (field) =>
      [data.filters[field.dataset.choice], field.value]).filter(([, value]) => value !== "");
    const ends = Array.from(document.querySelectorAll("[data-end]"), (field) =>
      [data.values[field.dataset.column], field.dataset.end, field.value]).filter(([, , value]) => value !== "");
    const isKept = (place) =>
      words.every((word) => texts[place].includes(word))
      && choices.every(([values, choice]) => `=${values[place]}` === choice)
      && ends.every(([values, end, value]) => values[place] !== null
        && (end === "min" ? values[place] >= Number(value) : values[place] <= Number(value)));
    kept = new Set(data.ids.filter((_, place) => isKept(place)));
    data.ids.forEach((id, place) => rows[place].classList.toggle("left-out", !kept.has(id)));
    byId("shown").textContent = `${kept.size} of ${data.ids.length} points shown`;
    update();
  }

  function sortBy(column, isDown) {
    const values = data.values[column];
    const cells = values ?? rows.map((row) => row.children[column + 1].textContent);
    const order = rows.map((_, place) => place).sort((first, second) => compared(cells[first], cells[second], isDown));
    document.querySelector("#table tbody").append(...order.map((place) => rows[place]));
    document.querySelectorAll("#table thead th[aria-sort]").forEach((head, place) => {
      head.setAttribute("aria-sort", place === column ? (isDown ? "descending" : "ascending") : "none");
    });
    sorting = { column, isDown };
  }

  // Unknown values stand last in both directions.
  function compared(first, second, isDown) {
    if (first === second) return 0;
    if (first === null || first === "") return 1;
    if (second === null || second === "") return -1;
    const sign = typeof first === "string" ? first.localeCompare(second, "en", { numeric: true }) : first - second;
    return isDown ? -sign : sign;
  }

  // Says that a part of the table is out of sight.
  function showHint() {
    const box = byId("table").parentElement;
    byId("more-columns").hidden = box.scrollWidth <= box.clientWidth;
  }

  function listenToTable() {
    showHint();
    addEventListener("resize", showHint);
    byId("filters").addEventListener("input", filterRows);
    byId("filters").addEventListener("submit", (event) => event.preventDefault());
    byId("filters").addEventListener("reset", () => setTimeout(filterRows));
    document.querySelector("#table thead").addEventListener("click", (event) => {
      const column = event.target.closest("button")?.dataset.sort;
      if (column === undefined) return;
      // Numbers begin with the largest.
      const isFirst = sorting.column !== Number(column);
      sortBy(Number(column), isFirst ? data.values[column] !== null : !sorting.isDown);
    });
    const idOfRow = new Map(Array.from(rowOf, ([id, row]) => [row, id]));
    document.querySelector("#table tbody").addEventListener("change", (event) => {
      choose([idOfRow.get(event.target.closest("tr"))], { adds: true });
    });
  }

  // --- Table behind a plot ---

  function fillTable(details) {
    const plot = plots.get(details.dataset.plot);
    details.querySelector(".scroll")?.remove();
    const columns = Object.entries(plot.table);
    const table = document.createElement("table");
    const head = table.createTHead().insertRow();
    for (const [header] of columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = header;
      head.append(cell);
    }
    const body = table.createTBody();
    const count = columns[0]?.[1].length ?? 0;
    for (let place = 0; place < count; place += 1) {
      const row = body.insertRow();
      for (const [, cells] of columns) row.insertCell().textContent = cells[place];
    }
    const box = document.createElement("div");
    box.className = "scroll";
    box.tabIndex = 0;
    box.setAttribute("role", "region");
    box.setAttribute("aria-label", `Table: ${plot.title}`);
    box.append(table);
    details.append(box);
  }

  // --- Print: all plots, on white, as wide as paper ---

  let themeOnScreen;

  function beginPrint() {
    themeOnScreen = root.dataset.theme;
    root.dataset.theme = "light";
    root.dataset.print = "yes";
    for (const name of plots.keys()) draw(name);
  }

  function endPrint() {
    delete root.dataset.print;
    if (themeOnScreen) root.dataset.theme = themeOnScreen;
    else delete root.dataset.theme;
    for (const [name, element] of drawn) draw(name).then(() => Plotly.Plots.resize(element));
  }

  // --- Beginning ---

  // Reads JSON that is compressed, so that the page stays small.
  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(byId(id).textContent), (character) => character.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }

  async function showPlots() {
    // Plotly stands below this script.
    const parsed = new Promise((done) => document.addEventListener("DOMContentLoaded", done));
    const packed = await unpacked("packed");
    for (const plot of packed.filter((one) => !one.is_table)) {
      plot.all = plot.traces;
      plot.traces = plot.all.filter((trace) => !trace.visible);
      plots.set(plot.name, plot);
    }
    for (const plot of plots.values()) size(plot);
    for (const details of document.querySelectorAll("details.numbers[open]")) fillTable(details);
    await parsed;
    drawWhenSeen();
    if (state.scroll) scrollTo({ top: state.scroll, behavior: "instant" });
    if (state.focus) byId(state.focus)?.focus({ preventScroll: true });
    root.dataset.ready = "yes";
    addEventListener("beforeprint", beginPrint);
    addEventListener("afterprint", endPrint);
  }

  // Draws plots as they come near, one at a time, so that the first can be used at once.
  function drawWhenSeen() {
    let last = Promise.resolve();
    const observer = new IntersectionObserver((entries) => {
      for (const { target } of entries.filter((entry) => entry.isIntersecting)) {
        observer.unobserve(target);
        last = last.then(() => draw(target.id.replace(/-plot$/, ""))).then(painted);
      }
    }, { rootMargin: "200px" });
    document.querySelectorAll(".plot").forEach((element) => observer.observe(element));
  }

  function painted() {
    return new Promise((done) => { requestAnimationFrame(() => setTimeout(done)); });
  }

  // Lines beyond the first ones, which only stand in the way before somebody asks.
  function showMore(button) {
    const plot = plots.get(button.dataset.more);
    const count = plot.all.length - plot.traces.length;
    plot.traces = plot.all.map(({ visible, ...trace }) => trace);
    plot.layout.height += 20 * count;
    byId(`${plot.name}-plot`).style.height = `${plot.layout.height}px`;
    button.remove();
    draw(plot.name);
  }

  const state = stored();
  history.scrollRestoration = "manual"; // It is restored once the plots have their heights.
  setTheme(state.theme);
  if (rows.length) listenToTable();
  restoreState(state);
  if (rows.length) filterRows();
  byId("clear").addEventListener("click", () => {
    clearChosen();
    byId("search")?.focus({ preventScroll: true });
  });
  document.querySelectorAll("details.numbers").forEach((details) => {
    details.addEventListener("toggle", () => details.open && plots.size && fillTable(details));
  });
  document.querySelectorAll("[data-more]").forEach((button) => {
    button.addEventListener("click", () => plots.size && showMore(button));
  });
  byId("theme").addEventListener("click", () => {
    setTheme(isDark() ? "light" : "dark");
    redrawAll();
    storeState();
  });
  prefersDark.addEventListener("change", () => {
    setTheme();
    redrawAll();
  });
  addEventListener("pagehide", storeState);

  showPlots();
})();
