"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const $ = (selector, within = document) => within.querySelector(selector);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];

  /** An element with attributes and children; text is always text. */
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== "") element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== undefined));
    return element;
  };
  const button = (label, act, attributes = {}) => {
    const made = make("button", { type: "button", class: "plain", ...attributes }, label);
    made.addEventListener("click", act);
    return made;
  };
  const percent = (share) => {
    const value = 100 * share;
    if (value >= 9.95) return `${Math.round(value)} %`;
    return value >= 0.1 ? `${value.toFixed(1)} %` : "<0.1 %";
  };
  const tidy = (text) => text.replace(/\s+/g, " ").trim();
  const motion = () => matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth";

  // Steps: one is open at a time, beside the list of them

  const steps = all("article.step");
  const stepOf = new Map(steps.map((step) => [step.dataset.variant, step]));
  let openStep = null;
  const place = $(".step-buttons span");
  const openOnly = (step) => {
    if (!step || step === openStep) return;
    openStep = step;
    for (const each of steps) each.classList.toggle("open", each === step);
    for (const link of all(".step-list a")) {
      if (link.dataset.variant === step.dataset.variant) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
    const at = steps.indexOf(step);
    place.textContent = `${at + 1} of ${steps.length}`;
    $('[data-go="-1"]').disabled = at === 0;
    $('[data-go="1"]').disabled = at === steps.length - 1;
    showInList($('.step-list [aria-current]'));
    all("[data-diff]", step).forEach(build);
  };
  /** Scroll the list alone, never the page. */
  const showInList = (link) => {
    const list = $(".step-list ol");
    const [box, item] = [list.getBoundingClientRect(), link.getBoundingClientRect()];
    if (item.top < box.top) list.scrollTop -= box.top - item.top;
    if (item.bottom > box.bottom) list.scrollTop += item.bottom - box.bottom;
    if (item.left < box.left || item.right > box.right) list.scrollLeft += item.left - box.left;
  };
  const goBy = (by) => {
    const next = steps[steps.indexOf(openStep) + by];
    if (next) goTo(next.id);
  };

  // Going to a place on the page; the address keeps it

  /** What an address means: an anchor of the page, or the name of a variant. */
  const target = (anchor) => {
    if (!anchor) return null;
    let name = "";
    try { name = decodeURIComponent(anchor); } catch { /* not one of ours */ }
    return document.getElementById(anchor) ?? stepOf.get(name) ?? null;
  };
  const reach = (element, behavior = motion()) => {
    for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    openOnly(element.closest("article.step"));
    element.scrollIntoView({ behavior });
    const focus = element.tagName === "DETAILS" ? $("summary", element) : element;
    if (!focus.matches("a, button, summary, [tabindex]")) focus.setAttribute("tabindex", "-1");
    focus.focus({ preventScroll: true });
  };
  const goTo = (anchor) => {
    history.pushState(null, "", `#${anchor}`);
    const element = target(anchor);
    if (element) reach(element);
  };
  const fromAddress = (behavior) => {
    const element = target(location.hash.slice(1));
    if (element) reach(element, behavior);
  };
  addEventListener("popstate", () => fromAddress());

  // Clicks and keys

  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link) {
      if (event.metaKey || event.ctrlKey || event.shiftKey) return;
      event.preventDefault();
      return goTo(link.getAttribute("href").slice(1));
    }
    const go = event.target.closest("[data-go]");
    if (go) goBy(Number(go.dataset.go));
  });
  const typing = (element) => element.matches?.("input, textarea, select");
  const keys = {
    "/": () => field?.focus(),
    n: () => goBy(1),
    p: () => goBy(-1),
  };
  document.addEventListener("keydown", (event) => {
    if (event.metaKey || event.ctrlKey || event.altKey || typing(event.target)) return;
    if (!keys[event.key]) return;
    if (event.key === "/") event.preventDefault();
    keys[event.key]();
  });

  // Search over steps, lessons, files, figures and source lines

  const field = $("#search input");
  const hits = $("#hits");
  const MOST_HITS = 12;
  let index = null;
  const entry = (kind, words, where, element, values = "") => ({ kind, words, where, element, values, text: `${words} ${where}`.toLowerCase() });
  /** One of each figure: its lowest and highest value, and those of every variant. */
  const figureEntries = (table) => {
    const names = [...table.tHead.rows[0].cells].slice(1, -1).map((head) => head.textContent);
    return [...table.tBodies[0].rows].map((row) => {
      const [head, ...cells] = row.cells;
      const [label, range] = [head.firstChild.textContent, $("small", head).textContent];
      const values = names.map((name, i) => `${name} ${cells[i].textContent}`).join(" · ");
      return entry("figure", `${label}: ${range}`, cells.at(-1).textContent, head, values);
    });
  };
  /** What the browser's own search does not find while it is closed; made when it is first wanted. */
  const makeIndex = () => [
    ...steps.map((step) => entry("step", tidy($("h3", step).textContent), "", step)),
    ...steps.flatMap((step) => all(":scope > p", step).filter((text) => /^Lesson\./.test(text.textContent))
      .map((text) => entry("lesson", tidy(text.textContent), step.dataset.variant, text))),
    ...all("[data-source]").map((holder) => entry("file", holder.dataset.source, holder.dataset.of, holder.closest("details"))),
    ...all("table.figures").flatMap(figureEntries),
  ];
  const matches = (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    index ??= makeIndex();
    const found = index.filter((each) => words.every((word) => each.text.includes(word)));
    const rank = (each) => each.words.toLowerCase().startsWith(words[0]) ? 0 : 1;
    const ranked = found.map((each, i) => [rank(each), i, each]).sort((a, b) => a[0] - b[0] || a[1] - b[1]);
    return [...ranked.map(([, , each]) => each), ...lineMatches(words)];
  };
  /** Source lines with all the words, the first file of each text. */
  const lineMatches = (words) => Object.entries(data.sources).flatMap(([name, text]) => text.split("\n").flatMap((line, n) => {
    const low = line.toLowerCase();
    if (!words.every((word) => low.includes(word))) return [];
    return [{ ...entry("line", tidy(line), `${name}:${n + 1}`, null), name, n }];
  }));
  const goToLine = ({ name, n }) => {
    const holder = all("[data-source]").find((each) => each.dataset.source === name);
    reach(holder.closest("details"), "auto");
    build(holder);
    const row = $("tbody", holder).rows[n];
    row.setAttribute("tabindex", "-1");
    row.scrollIntoView({ block: "center" });
    row.focus({ preventScroll: true });
  };
  const closeHits = () => {
    hits.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const takeHit = (of) => {
    closeHits();
    field.value = "";
    if (of.kind === "line") return goToLine(of);
    const anchor = of.element.id;
    if (anchor) goTo(anchor);
    else reach(of.element);
  };
  const search = () => {
    const found = matches(field.value);
    hits.replaceChildren(...found.slice(0, MOST_HITS).map((of, i) => {
      const hit = make("li", { role: "option", id: `hit-${i}`, "aria-selected": String(i === 0) },
        make("small", {}, of.kind), make("span", {}, of.words), make("small", {}, of.where),
        ...(of.values ? [make("small", { class: "values" }, of.values)] : []));
      hit.addEventListener("pointerdown", (event) => { event.preventDefault(); takeHit(of); });
      hit.hit = of;
      return hit;
    }));
    if (!found.length) hits.append(make("li", { class: "none" }, "nothing found"));
    if (found.length > MOST_HITS) hits.append(make("li", { class: "none" }, `${found.length - MOST_HITS} more`));
    hits.hidden = !field.value.trim();
    field.setAttribute("aria-expanded", String(!hits.hidden));
    activate(0);
  };
  const activate = (at) => {
    const options = all("[role=option]", hits);
    options.forEach((option, i) => option.setAttribute("aria-selected", String(i === at)));
    if (!options[at]) return field.removeAttribute("aria-activedescendant");
    field.setAttribute("aria-activedescendant", options[at].id);
    options[at].scrollIntoView({ block: "nearest" });
  };
  const searchKey = (event) => {
    const options = all("[role=option]", hits);
    const at = options.findIndex((option) => option.getAttribute("aria-selected") === "true");
    if (event.key === "Escape") { closeHits(); field.value = ""; field.blur(); }
    else if (event.key === "Enter" && options[at]) takeHit(options[at].hit);
    else if (event.key === "ArrowDown" && options.length) activate((at + 1) % options.length);
    else if (event.key === "ArrowUp" && options.length) activate((at - 1 + options.length) % options.length);
    else return;
    event.preventDefault();
  };
  field.addEventListener("input", search);
  field.addEventListener("keydown", searchKey);
  field.addEventListener("blur", closeHits);
  $("#search").addEventListener("submit", (event) => event.preventDefault());

  // Ladders are sorted by a heading

  const sortBy = (head) => {
    const table = head.closest("table");
    const column = head.cellIndex;
    const direction = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const rows = [...table.tBodies[0].rows];
    const value = (row) => column ? row.cells[column].dataset.sort || null : row.dataset.order;
    const numeric = rows.every((row) => value(row) === null || !Number.isNaN(Number(value(row))));
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      const inOrder = a.dataset.order - b.dataset.order;
      if (x === null || y === null) return (x === null) - (y === null) || inOrder;
      return direction * (numeric ? x - y : x.localeCompare(y, "en")) || inOrder;
    });
    table.tBodies[0].append(...rows);
    for (const each of head.parentElement.cells) each.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
  };
  for (const table of all(".is-ladder")) {
    [...table.tBodies[0].rows].forEach((row, i) => { row.dataset.order = i; });
    table.tHead.rows[0].cells[0].setAttribute("aria-sort", "ascending");
    for (const head of all(".sort", table)) head.addEventListener("click", () => sortBy(head.closest("th")));
  }

  // Lines of source, and what they cost

  const files = new Map();
  /** The lines of a file. */
  const file = (name) => {
    if (!files.has(name)) {
      const lines = (data.sources[name] ?? "").split("\n");
      if (lines.at(-1) === "") lines.pop();
      files.set(name, lines.map((text) => text.replace(/\r$/, "")));
    }
    return files.get(name);
  };
  /** A line's text as nodes, with one range marked as changed. */
  const painted = (text, changed) => {
    if (!changed) return [text];
    const [start, end] = changed;
    return [text.slice(0, start), make("mark", {}, text.slice(start, end)), text.slice(end)];
  };
  /** What differs between two lines: all but their common ends, at whole words. */
  const differing = (a, b) => {
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start++;
    while (start > 0 && /\w/.test(a[start - 1])) start--;
    let end = 0;
    while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end++;
    while (end > 0 && /\w/.test(a.at(-end))) end--;
    const trimmed = (text) => {
      const middle = text.slice(start, text.length - end);
      if (!middle.trim()) return null;
      const from = start + middle.length - middle.trimStart().length;
      return [from, from + middle.trim().length];
    };
    return [trimmed(a), trimmed(b)];
  };
  const MOST_REASONS = 8;
  const counterNames = ["of executed instructions", "of excess L2 sectors", "of excess shared wavefronts"];
  const heatOf = (variant, name, line) => data.heat[variant]?.[name]?.[line + 1];
  const shareOf = (heat) => heat ? heat[0].reduce((sum, [, share]) => sum + share, 0) : 0;
  const hottest = (variant, name) =>
    Object.values(data.heat[variant]?.[name] ?? {}).reduce((most, heat) => Math.max(most, shareOf(heat)), 0);
  /** The strip of a line: length by share, colours by reason, and the share as text. */
  const heatCell = (variant, name, line, most, classes) => {
    const cell = make("td", { class: `heat ${classes}` });
    const heat = line === null ? undefined : heatOf(variant, name, line);
    const share = shareOf(heat);
    if (!share) return cell;
    const strip = make("span", { class: "strip", "aria-hidden": "true" });
    for (const [reason, value] of heat[0]) {
      if (value / most < 0.02) continue;
      const piece = make("i");
      piece.style.background = `var(--${data.reasons[reason].colour})`;
      piece.style.width = `${(100 * value / most).toFixed(2)}%`;
      strip.append(piece);
    }
    cell.append(strip, share < 0.001 ? make("span", { class: "faint" }, percent(share)) : percent(share),
      make("span", { class: "hidden" }, ` of all samples, mostly ${data.reasons[heat[0][0][0]].label}`));
    const [reasons, time, ...counters] = heat;
    cell.title = [
      `line ${line + 1} of ${name}`,
      ...(time === null ? [] : [`${time} µs of stall time under ncu`]),
      ...reasons.slice(0, MOST_REASONS).map(([reason, value]) => `${percent(value)} ${data.reasons[reason].label}`),
      ...counters.flatMap((value, i) => value ? [`${percent(value)} ${counterNames[i]}`] : []),
    ].join("\n");
    cell.share = share;
    return cell;
  };
  /** Code in its box, with a button where the box cuts it off. */
  const boxed = (table, label, note) => {
    const box = make("div", { class: "code", tabindex: "0", role: "region", "aria-label": label }, table);
    const foot = make("p", { class: "code-foot" }, make("span", {}, note));
    const more = button("show at full height", () => {
      const whole = box.classList.toggle("whole");
      more.setAttribute("aria-expanded", String(whole));
      more.textContent = whole ? "show in a box" : "show at full height";
    }, { "aria-expanded": "false" });
    if (table.tBodies[0].rows.length > 30) foot.append(more);
    return [box, foot];
  };
  const columnHead = (kind, words, ...more) =>
    make("th", { scope: "col", class: kind }, words || make("span", { class: "hidden" }, "line"), ...more);

  // The diff: side by side, or one column where that is too wide

  const CONTEXT = 3;
  const HOT = 0.02;
  const narrow = matchMedia("(max-width: 82rem)");
  const numberCell = (line, sign, classes) => make("td", { class: `number ${classes}` },
    ...(sign ? [make("span", { class: "sign" }, sign)] : []), line === null ? "" : String(line + 1));
  const changedParts = (of, [a, b, alike]) =>
    alike ? differing(file(of.before)[a], file(of.after)[b]) : [];
  const sideBySide = (of) => {
    const half = (line, name, variant, tone, sign, changed, extra) => {
      const look = line === null ? "void" : tone;
      return [
        heatCell(variant, name, line, of.most, `${look} ${extra}`),
        numberCell(line, line === null ? "" : sign, look),
        make("td", { class: `text ${look}` }, ...(line === null ? [] : painted(file(name)[line], changed))),
      ];
    };
    const row = (a, b, tones, signs, changed) => make("tr", {},
      ...half(a, of.before, of.heat[0], tones[0], signs[0], changed[0], ""),
      ...half(b, of.after, of.heat[1], tones[1], signs[1], changed[1], "side"));
    const head = (name, variant, extra) => [
      columnHead(`heat ${extra}`, "stalls"), columnHead("number", ""),
      columnHead("text", name ?? "no such file", make("span", {}, ` ${variant}`)),
    ];
    return {
      columns: of.cold ? 4 : 6,
      head: () => [...head(of.before, of.heat[0], ""), ...head(of.after, of.heat[1], "side")],
      same: (a, b) => [row(a, b, ["", ""], ["", ""], [])],
      differ: (pairs) => pairs.map((pair) => row(pair[0], pair[1], ["gone", "come"], ["−", "+"], changedParts(of, pair))),
    };
  };
  const unified = (of) => {
    const row = (a, b, line, name, sign, tone, changed) => make("tr", {},
      heatCell(of.heat[0], of.before, a, of.most, tone), heatCell(of.heat[1], of.after, b, of.most, tone),
      numberCell(line, sign, tone), make("td", { class: `text ${tone}` }, ...painted(file(name)[line], changed)));
    return {
      columns: of.cold ? 2 : 4,
      head: () => [columnHead("heat", "before"), columnHead("heat", "after"), columnHead("number", ""), columnHead("text", of.after ?? of.before)],
      same: (a, b) => [row(a, b, b, of.after, "", "")],
      differ: (pairs) => [
        ...pairs.filter(([a]) => a !== null).map((pair) => row(pair[0], null, pair[0], of.before, "−", "gone", changedParts(of, pair)[0])),
        ...pairs.filter(([, b]) => b !== null).map((pair) => row(null, pair[1], pair[1], of.after, "+", "come", changedParts(of, pair)[1])),
      ],
    };
  };
  /** Which of the equal lines are shown: those near a change, and those where warps wait. */
  const shownLines = (of, [from, to, length], first, last) => {
    const kept = new Set();
    for (let i = 0; i < length; i++) {
      if ((!first && i < CONTEXT) || (!last && i >= length - CONTEXT)) kept.add(i);
      const most = Math.max(shareOf(heatOf(of.heat[0], of.before, from + i)), shareOf(heatOf(of.heat[1], of.after, to + i)));
      if (most >= HOT) for (const j of [i - 1, i, i + 1]) if (j >= 0 && j < length) kept.add(j);
    }
    return kept;
  };
  /** Lines that a click shows. */
  const folded = (layout, words, rows) => {
    const row = make("tr", { class: "gap" }, make("td", { colspan: layout.columns }, button(words, () => row.replaceWith(...rows()))));
    return row;
  };
  const gapRow = (layout, from, to, length) => folded(layout, `${length} unchanged lines`,
    () => Array.from({ length }, (_, i) => layout.same(from + i, to + i)).flat());
  /** Where a hunk stands and what its lines cost, before its first line. */
  const hunkRow = (of, layout, number) => {
    const [where, cost] = of.hunks[number];
    return make("tr", { class: "hunk" }, make("td", { colspan: layout.columns, tabindex: "-1", "data-hunk": number },
      make("b", {}, `hunk ${number}: ${where}`), make("span", {}, cost)));
  };
  const equalRows = (of, layout, block, first, last) => {
    const [from, to, length] = block;
    const kept = shownLines(of, block, first, last);
    const rows = [];
    for (let i = 0; i < length;) {
      let end = i;
      while (end < length && !kept.has(end)) end++;
      if (end - i > 1) rows.push(gapRow(layout, from + i, to + i, end - i));
      else for (let j = i; j < Math.max(end, i + 1); j++) rows.push(...layout.same(from + j, to + j));
      i = Math.max(end, i + 1);
    }
    return rows;
  };
  const diffRows = (of, layout, blocks) => {
    const begun = new Set();
    return blocks.flatMap((block, n) => {
      if (block.length !== 2) return equalRows(of, layout, block, n === 0, n === blocks.length - 1);
      const [pairs, number] = block;
      const [where, cost] = of.hunks[number];
      if (cost === data.comments) return folded(layout, `${where}: ${cost}`, () => layout.differ(pairs));
      const heading = begun.has(number) ? [] : [hunkRow(of, layout, number)];
      begun.add(number);
      return [...heading, ...layout.differ(pairs)];
    });
  };
  const diffTable = (of, blocks) => {
    const layout = narrow.matches ? unified(of) : sideBySide(of);
    const looks = [narrow.matches ? "unified" : "", of.cold ? "cold" : ""].filter(Boolean);
    return make("table", { class: looks.join(" ") },
      make("caption", { class: "hidden" }, `${of.pair}: ${of.heat[0]} beside ${of.heat[1]}, with the stall time of each line as a share of all samples`),
      make("thead", {}, make("tr", {}, ...layout.head())), make("tbody", {}, ...diffRows(of, layout, blocks)));
  };
  const buildDiff = (holder) => {
    const { diff: child } = holder.dataset;
    const found = data.diffs[child] ?? [];
    const parts = found.map(({ before, after, blocks, hunks, heat }) => {
      const most = Math.max(hottest(heat[0], before), hottest(heat[1], after), 1e-9);
      const cold = !data.heat[heat[0]]?.[before] && !data.heat[heat[1]]?.[after];
      const pair = before === after ? after : `${before ?? "no file"} to ${after ?? "no file"}`;
      const pairs = blocks.flatMap((block) => block.length === 2 ? block[0] : []);
      const count = (side) => pairs.filter((each) => each[side] !== null).length;
      const note = `${pair}: ${count(1)} lines added, ${count(0)} removed.${cold ? "" : " Strips: stall time as a share of all samples of each variant."}`;
      return boxed(diffTable({ before, after, pair, heat, most, cold, hunks }, blocks), `Diff of ${child}, ${pair}`, note);
    });
    const costly = found.flatMap(({ hunks }) => Object.entries(hunks))
      .map(([number, [where, , share, weight]]) => ({ number, where, share, weight }))
      .filter(({ weight }) => weight > 0).sort((a, b) => b.weight - a.weight);
    holder.replaceChildren(...(costly.length > 1 ? [hunkList(holder, costly)] : []), ...parts.flat());
    if (costly.length) showHunk(holder, costly[0].number, { quietly: true });
  };
  const MOST_HUNKS = 6;
  const hunkList = (holder, costly) => make("p", { class: "hunk-list" }, "Costliest hunks: ",
    ...costly.slice(0, MOST_HUNKS).map(({ number, where, share }) =>
      button(`${number} (${percent(share)})`, () => showHunk(holder, number), { title: where })));
  const shareIn = (row) => Math.max(0, ...[...row.cells].map((cell) => cell.share ?? 0));
  /** The row on which most of the stall time falls, marked; null where nothing does. */
  const hottestOf = (rows) => {
    const hot = rows.reduce((a, b) => shareIn(b) > shareIn(a) ? b : a, rows[0]);
    if (!hot || !shareIn(hot)) return null;
    hot.classList.add("hottest");
    return hot;
  };
  const within = (box, element) => element.getBoundingClientRect().top - box.getBoundingClientRect().top + box.scrollTop;
  const centre = (box, row) => { box.scrollTop = within(box, row) - box.clientHeight / 2; };
  const rowsOfHunk = (heading) => {
    const rows = [];
    for (let row = heading.nextElementSibling; row && !row.matches(".hunk, .gap"); row = row.nextElementSibling) rows.push(row);
    return rows;
  };
  /** Scroll a hunk to the top of its box, or its hottest line into it; quietly, the page stays. */
  const showHunk = (holder, number, { quietly = false } = {}) => {
    all("[data-diff]", holder).forEach(build);
    const cell = all("td[data-hunk]", holder).find((each) => each.dataset.hunk === String(number));
    if (!cell) return;
    const box = cell.closest(".code");
    box.scrollTop = within(box, cell) - $("thead", box).offsetHeight;
    const hot = hottestOf(rowsOfHunk(cell.parentElement));
    if (hot && hot.getBoundingClientRect().bottom > box.getBoundingClientRect().bottom) centre(box, hot);
    if (quietly) return;
    box.scrollIntoView({ behavior: motion(), block: "nearest" });
    cell.focus({ preventScroll: true });
  };

  // The source of one variant

  const sourceRow = (variant, name, line, n, most, warm) => {
    const heat = heatOf(variant, name, n);
    const cells = warm ? [
      heatCell(variant, name, n, most, ""),
      make("td", { class: "why" }, shareOf(heat) ? data.reasons[heat[0][0][0]].label : ""),
      make("td", { class: "run" }, heat?.[2] ? percent(heat[2]) : ""),
    ] : [];
    return make("tr", {}, ...cells, make("td", { class: "number" }, String(n + 1)), make("td", { class: "text" }, ...painted(line)));
  };
  const buildSource = (holder) => {
    const { source: name, of: variant } = holder.dataset;
    const most = Math.max(hottest(variant, name), 1e-9);
    const warm = Boolean(data.heat[variant]?.[name]);
    const heads = warm ? [["heat", "stalls"], ["why", "mostly"], ["run", "executed"]] : [];
    const grid = make("table", {},
      make("caption", { class: "hidden" }, `${name} of ${variant} by line`),
      make("thead", {}, make("tr", {}, ...[...heads, ["number", ""], ["text", name]].map(([kind, words]) => columnHead(kind, words)))),
      make("tbody", {}, ...file(name).map((line, n) => sourceRow(variant, name, line, n, most, warm))));
    const note = warm ? "stalls: share of all samples; mostly: the largest reason; executed: share of warp instructions." : "costs by line: not collected.";
    holder.replaceChildren(...boxed(grid, `Source ${name} of ${variant}`, note));
    const hot = hottestOf([...grid.tBodies[0].rows]);
    if (hot) centre($(".code", holder), hot);
  };

  // Diffs and sources are built when they are first shown

  const built = new Set();
  const build = (holder) => {
    if (built.has(holder)) return;
    built.add(holder);
    if (holder.dataset.diff !== undefined) buildDiff(holder);
    else buildSource(holder);
  };
  document.addEventListener("toggle", (event) => {
    if (event.target.open) all("[data-source], [data-diff]", event.target).filter((holder) => holder.checkVisibility()).forEach(build);
  }, true);
  narrow.addEventListener("change", () => {
    for (const holder of built) if (holder.dataset.diff !== undefined) buildDiff(holder);
  });

  // Light and dark

  const theme = $("#theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const nameTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`);
  };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("workbench-theme", root.dataset.theme); } catch { /* a file may have no storage */ }
    nameTheme();
  });
  dark.addEventListener("change", nameTheme);
  nameTheme();

  openOnly(steps.find((step) => step.dataset.variant === $("main").dataset.opened) ?? steps[0]);
  fromAddress("auto");
})();
