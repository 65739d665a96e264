"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const variants = new Map(data.variants.map((variant) => [variant.name, variant]));
  const order = data.variants.map((variant) => variant.name);
  const marked = [...document.querySelectorAll("[data-variant]")];
  const part = new Map([...new Set(data.reasons.map((r) => r.part))].map((key) => [key, 0]));
  data.reasons.forEach((reason, place) => { if (part.has(reason.key)) part.set(reason.key, place); });

  /** An element with attributes and children; text is always text. */
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== "") element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== undefined));
    return element;
  };
  const percent = (share) => {
    const value = 100 * share;
    if (value >= 9.95) return `${Math.round(value)} %`;
    return value >= 0.1 ? `${value.toFixed(1)} %` : "<0.1 %";
  };
  const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

  // The address keeps the place in the page and the chosen version: #steps&variant=fix2
  const place = { anchor: "", variant: "" };
  const readHash = () => {
    place.anchor = place.variant = "";
    for (const piece of location.hash.slice(1).split("&")) {
      if (!piece.startsWith("variant=")) { place.anchor ||= piece; continue; }
      try { place.variant = decodeURIComponent(piece.slice(8)); } catch { /* not one of ours */ }
    }
  };
  const writeHash = (push) => {
    const pieces = [place.anchor, place.variant && `variant=${encodeURIComponent(place.variant)}`];
    const hash = pieces.filter(Boolean).join("&");
    const address = hash ? `#${hash}` : location.pathname + location.search;
    history[push ? "pushState" : "replaceState"](null, "", address);
  };

  // Choosing a version
  const bar = document.getElementById("chosen");
  const show = (name, { aloud = false } = {}) => {
    const found = variants.get(name);
    root.classList.toggle("has-choice", Boolean(found));
    for (const element of marked) {
      const mine = Boolean(found) && element.dataset.variant === name;
      element.classList.toggle("chosen", mine);
      const buttons = [element, ...element.querySelectorAll("[data-choose]")];
      for (const button of buttons) {
        if (button.hasAttribute("aria-pressed")) button.setAttribute("aria-pressed", String(mine));
      }
    }
    bar.hidden = !found;
    if (!found) return;
    const go = (label, kind) => {
      const target = marked.find((element) => element.dataset.variant === name && element.id.startsWith(kind));
      return make("a", { href: `#${target.id}` }, label);
    };
    const press = (label, title, act) => {
      const button = make("button", { type: "button", class: "plain", "aria-label": title }, label);
      button.addEventListener("click", act);
      return button;
    };
    bar.replaceChildren(
      make("b", {}, found.label),
      make("span", { class: `pill ${found.kind}` }, found.word),
      make("span", { class: "figures" }, found.line.join(", ")),
      ...(found.step ? [go("step", "step-")] : []),
      go("sources", "variant-"),
      press("‹", "Version before", () => beside(-1)),
      press("›", "Next version", () => beside(1)),
      press("clear", "Clear the mark", () => choose("")),
    );
    if (aloud) document.getElementById("said").textContent = `${found.label} is marked: ${found.word}, ${found.line.join(", ")}`;
  };
  const choose = (name) => {
    place.variant = variants.has(name) ? name : "";
    writeHash(false);
    show(place.variant, { aloud: true });
  };
  const beside = (by) => {
    const at = order.indexOf(place.variant);
    choose(order[(at + by + order.length) % order.length]);
  };
  const chooser = (target) => target.closest("[data-choose]") ?? target.closest("#ladder-table tbody tr");
  const owner = (element) => element.closest("[data-variant]").dataset.variant;
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link) return follow(event, link);
    const toHunk = event.target.closest(".to-hunk");
    if (toHunk) return showHunk(`${owner(toHunk)}/${toHunk.dataset.hunk}`);
    const button = chooser(event.target);
    if (!button || String(getSelection())) return;
    const name = owner(button);
    choose(name === place.variant ? "" : name);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (!tip.hidden) return hideTip();
      if (place.variant) choose("");
      return;
    }
    const button = event.target.closest?.("g[data-choose], .bar[data-choose]");
    if (!button) return;
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      const name = owner(button);
      choose(name === place.variant ? "" : name);
    }
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by) {
      event.preventDefault();
      const all = [...button.parentElement.querySelectorAll(":scope > [data-choose]")];
      all[(all.indexOf(button) + by + all.length) % all.length].focus();
    }
  });

  const showHunk = (name) => {
    buildAll("[data-diff]");
    const cell = [...document.querySelectorAll("td[data-hunk]")].find((each) => each.dataset.hunk === name);
    if (!cell) return;
    cell.scrollIntoView({ behavior: calm() ? "auto" : "smooth", block: "center" });
    cell.focus({ preventScroll: true });
  };

  // Moving about keeps the choice in the address
  const reach = (anchor, behavior = calm() ? "auto" : "smooth") => {
    const target = anchor && document.getElementById(anchor);
    if (!target) return;
    buildAll("[data-diff]"); // what is built above the target later would push it away
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.scrollIntoView({ behavior });
    if (!target.hasAttribute("tabindex") && target.tagName !== "DETAILS") target.setAttribute("tabindex", "-1");
    (target.tagName === "DETAILS" ? target.querySelector("summary") : target).focus({ preventScroll: true });
  };
  const follow = (event, link) => {
    if (event.metaKey || event.ctrlKey || event.shiftKey) return;
    event.preventDefault();
    place.anchor = link.getAttribute("href").slice(1);
    writeHash(true);
    reach(place.anchor);
  };
  addEventListener("popstate", () => { readHash(); show(place.variant); reach(place.anchor); });

  // Sorting the ladder
  const table = document.getElementById("ladder-table");
  const heads = [...table.tHead.rows[0].cells];
  const sort = (column, direction) => {
    const value = (row) => row.cells[column].dataset.sort;
    const numeric = column === 0 || heads[column].classList.contains("n") || heads[column].querySelector('[data-key="stall"]');
    const compare = (a, b) => {
      const [x, y] = [value(a), value(b)];
      if (x === "" || y === "") return (x === "") - (y === "") || a.dataset.order - b.dataset.order;
      const found = numeric ? x - y : x.localeCompare(y, "en");
      return direction * found || a.dataset.order - b.dataset.order;
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
    heads.forEach((head, i) => {
      if (i === column) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  };
  heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
    sort(column, head.getAttribute("aria-sort") === "ascending" ? -1 : 1);
  }));
  heads[0].setAttribute("aria-sort", "ascending");

  // What stands behind a point, a part of a bar, a ceiling or a line
  const tip = document.getElementById("tip");
  let hiding = 0;
  let tipped = null;
  let shownAt = 0;
  const facts = (rows) => make("dl", {}, ...rows.flatMap(([what, value, metric]) => [
    make("dt", {}, what), make("dd", {}, value),
    ...(metric ? [make("dd", { class: "metric" }, metric)] : []),
  ]));
  const words = (element) => {
    const kind = element.dataset.tip;
    if (kind === "roof") {
      const roof = data.roofs[element.dataset.key];
      return [roof.label, [["Ceiling", roof.value, roof.source]]];
    }
    if (kind === "line") {
      const { reasons, time, counters } = element.heat;
      return [`line ${element.dataset.line} of ${element.dataset.file}`, [
        ...(time === null ? [] : [["stall time under ncu", `${time} µs`]]),
        ...reasons.map(([r, share]) => [data.reasons[r].label, percent(share)]),
        ...counters.map(([what, share]) => [what, percent(share)]),
      ]];
    }
    const variant = variants.get(owner(element));
    if (kind === "point") return [`${variant.label}, ${variant.word}`, variant.point];
    if (kind === "stall") return [variant.label, variant.stalls[element.dataset.part]];
    return [`${variant.label}: warp states`, Object.values(variant.stalls).flat().map(([what, value]) => [what, value])];
  };
  const showTip = (element, x, y) => {
    clearTimeout(hiding);
    if (tipped !== element) {
      tipped?.removeAttribute("aria-describedby");
      const [title, rows] = words(element);
      tip.replaceChildren(make("strong", {}, title), facts(rows));
      tipped = element;
      if (element.hasAttribute("tabindex")) element.setAttribute("aria-describedby", "tip");
    }
    tip.hidden = false;
    shownAt = scrollY;
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(Math.max(8, x + 14), innerWidth - width - 8);
    const below = y + 18 + height < innerHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${Math.max(8, below ? y + 18 : y - height - 12)}px`;
  };
  const hideTip = () => {
    tip.hidden = true;
    tipped?.removeAttribute("aria-describedby");
    tipped = null;
  };
  const soon = () => { clearTimeout(hiding); hiding = setTimeout(hideTip, 140); };
  document.addEventListener("pointerover", (event) => {
    if (tip.contains(event.target)) return clearTimeout(hiding);
    const element = event.target.closest("[data-tip]");
    if (element) showTip(element, event.clientX, event.clientY);
    else if (!tip.hidden) soon();
  });
  document.documentElement.addEventListener("pointerleave", soon);
  document.addEventListener("focusin", (event) => {
    const element = event.target.closest("[data-tip]");
    if (!element || !element.matches(":focus-visible")) return;
    const box = element.getBoundingClientRect();
    showTip(element, box.left + Math.min(box.width / 2, 120), box.bottom - 8);
  });
  document.addEventListener("focusout", soon);
  addEventListener("scroll", () => {
    if (!tip.hidden && !tip.matches(":hover") && Math.abs(scrollY - shownAt) > 60) hideTip();
  }, { passive: true });

  // Sources
  const keywords = new Set(("alignas auto bool break case class const constexpr continue default do double else enum extern "
    + "false float for if inline int long nullptr return short signed sizeof static struct switch template true "
    + "typedef typename uint32_t uint64_t unsigned using void volatile while asm __global__ __device__ __shared__ "
    + "__restrict__ __launch_bounds__ __forceinline__ and as def elif except from import in is lambda None not or pass "
    + "raise True False try with yield").split(" "));
  const token = /(?<c>\/\/.*|\/\*.*?(?:\*\/|$))|(?<s>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?<w>[A-Za-z_]\w*)/g;
  const python = /(?<c>#.*)|(?<s>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|(?<w>[A-Za-z_]\w*)/g;
  /** [start, end, class] of what is coloured in one line; `open` says that a comment goes on. */
  const tokens = (line, file, open) => {
    const found = [];
    let from = 0;
    if (open) {
      const end = line.indexOf("*/");
      found.push([0, end < 0 ? line.length : end + 2, "tok-c"]);
      if (end < 0) return [found, true];
      from = end + 2;
    }
    let on = false;
    const pattern = file.endsWith(".py") ? python : token;
    for (const match of line.slice(from).matchAll(pattern)) {
      const { c, s, w } = match.groups;
      const start = from + match.index;
      if (c) { found.push([start, start + c.length, "tok-c"]); on = c.startsWith("/*") && !c.endsWith("*/"); }
      else if (s) found.push([start, start + s.length, "tok-s"]);
      else if (keywords.has(w)) found.push([start, start + w.length, "tok-k"]);
    }
    return [found, on];
  };
  const files = new Map();
  const file = (name) => {
    if (!files.has(name)) {
      const text = (data.sources[name] ?? "").split("\n");
      if (text.at(-1) === "") text.pop();
      let open = false;
      files.set(name, text.map((raw) => {
        const line = raw.replace(/\r$/, "");
        const [found, goes] = tokens(line, name, open);
        open = goes;
        return { text: line, tokens: found };
      }));
    }
    return files.get(name);
  };
  /** A line's text as nodes, with its tokens coloured and one range marked as changed. */
  const painted = ({ text, tokens: found }, changed) => {
    const cuts = new Set([0, text.length, ...(changed ?? [])]);
    for (const [a, b] of found) cuts.add(a).add(b);
    const at = [...cuts].sort((a, b) => a - b);
    const nodes = [];
    for (let i = 0; i + 1 < at.length; i++) {
      const piece = text.slice(at[i], at[i + 1]);
      const kind = found.find(([a, b]) => a <= at[i] && at[i] < b)?.[2];
      const inner = kind ? make("span", { class: kind }, piece) : piece;
      const new_ = changed && changed[0] <= at[i] && at[i] < changed[1];
      nodes.push(new_ ? make("mark", {}, inner) : inner);
    }
    return nodes;
  };
  /** What differs between two lines: all but their common ends, at whole words. */
  const differing = (a, b) => {
    let start = 0;
    while (start < a.length && start < b.length && a[start] === b[start]) start++;
    while (start > 0 && /\w/.test(a[start - 1])) start--;
    let end = 0;
    while (end < a.length - start && end < b.length - start && a.at(-1 - end) === b.at(-1 - end)) end++;
    while (end > 0 && /\w/.test(a.at(-end))) end--;
    const trim = (text) => {
      const middle = text.slice(start, text.length - end);
      if (!middle.trim()) return null;
      const from = start + middle.length - middle.trimStart().length;
      return [from, from + middle.trim().length];
    };
    return [trim(a), trim(b)];
  };
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
      const piece = make("i", { class: `r${part.get(data.reasons[reason].part)}` });
      piece.style.width = `${(100 * value / most).toFixed(2)}%`;
      strip.append(piece);
    }
    cell.append(strip, share < 0.001 ? make("span", { class: "faint" }, percent(share)) : percent(share), make("span", { class: "hidden" }, ` of all samples, mostly ${data.reasons[heat[0][0][0]].label}`));
    cell.dataset.tip = "line";
    cell.dataset.line = line + 1;
    cell.dataset.file = name;
    cell.heat = {
      reasons: heat[0].slice(0, 8),
      time: heat[1],
      counters: heat.slice(2).map((value, i) => [counterNames[i], value]).filter(([, value]) => value),
    };
    return cell;
  };
  /** Code in its box, with a button where the box cuts it off. */
  const boxed = (table_, label, note) => {
    const box = make("div", { class: "code", tabindex: "0", role: "region", "aria-label": label }, table_);
    const foot = make("p", { class: "code-foot" }, make("span", {}, note));
    const more = make("button", { type: "button", class: "plain", "aria-expanded": "false" }, "show at full height");
    more.addEventListener("click", () => {
      const whole = box.classList.toggle("whole");
      more.setAttribute("aria-expanded", String(whole));
      more.textContent = whole ? "show in a box" : "show at full height";
    });
    if (table_.tBodies[0].rows.length > 30) foot.append(more);
    return [box, foot];
  };

  // The diff: side by side, or one column where that is too wide
  const CONTEXT = 3;
  const HOT = 0.02;
  const narrow = matchMedia("(max-width: 40rem)");
  const numberCell = (line, sign, classes) => make("td", { class: `number ${classes}` },
    ...(sign ? [make("span", { class: "sign" }, sign)] : []), line === null ? "" : String(line + 1));
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
      make("th", { scope: "col", class: `heat ${extra}` }, "stalls"),
      make("th", { scope: "col", class: "number" }, make("span", { class: "hidden" }, "line")),
      make("th", { scope: "col", class: "text" }, name ?? "no such file", make("span", {}, ` ${variant}`)),
    ];
    return {
      columns: of.cold ? 4 : 6,
      head: () => [...head(of.before, of.heat[0], ""), ...head(of.after, of.heat[1], "side")],
      same: (a, b) => [row(a, b, ["", ""], ["", ""], [])],
      differ: (pairs) => pairs.map(([a, b, alike]) => row(a, b, ["gone", "come"], ["−", "+"],
        alike ? differing(file(of.before)[a].text, file(of.after)[b].text) : [])),
    };
  };
  const unified = (of) => {
    const row = (a, b, line, name, sign, tone, changed) => make("tr", {},
      heatCell(of.heat[0], of.before, a, of.most, tone), heatCell(of.heat[1], of.after, b, of.most, tone),
      numberCell(line, sign, tone), make("td", { class: `text ${tone}` }, ...painted(file(name)[line], changed)));
    const marks = ([a, b, alike]) => alike ? differing(file(of.before)[a].text, file(of.after)[b].text) : [];
    return {
      columns: of.cold ? 2 : 4,
      head: () => [["heat", "before"], ["heat", "after"], ["number", ""], ["text", of.after ?? of.before]]
        .map(([kind, word]) => make("th", { scope: "col", class: kind }, word || make("span", { class: "hidden" }, "line"))),
      same: (a, b) => [row(a, b, b, of.after, "", "")],
      differ: (pairs) => [
        ...pairs.filter(([a]) => a !== null).map((p) => row(p[0], null, p[0], of.before, "−", "gone", marks(p)[0])),
        ...pairs.filter(([, b]) => b !== null).map((p) => row(null, p[1], p[1], of.after, "+", "come", marks(p)[1])),
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
  const gap = (layout, from, to, length) => {
    const button = make("button", { type: "button" }, `${length} unchanged lines`);
    const row = make("tr", { class: "gap" }, make("td", { colspan: layout.columns }, button));
    button.addEventListener("click", () => {
      row.replaceWith(...Array.from({ length }, (_, i) => layout.same(from + i, to + i)).flat());
    });
    return row;
  };
  /** Where a hunk stands and what its lines cost, before its first line. */
  const hunkRow = (of, layout, number) => {
    const [where, cost] = of.hunks[number];
    return make("tr", { class: "hunk" }, make("td", { colspan: layout.columns, tabindex: "-1", "data-hunk": `${of.child}/${number}` },
      make("b", {}, `hunk ${number}: ${where}`), make("span", {}, cost)));
  };
  const diffRows = (of, layout, blocks) => blocks.flatMap((block, n) => {
    if (block.length === 2) {
      const first = blocks.findIndex((other) => other.length === 2 && other[1] === block[1]) === n;
      return [...(first ? [hunkRow(of, layout, block[1])] : []), ...layout.differ(block[0])];
    }
    const [from, to, length] = block;
    const kept = shownLines(of, block, n === 0, n === blocks.length - 1);
    const rows = [];
    for (let i = 0; i < length;) {
      let end = i;
      while (end < length && !kept.has(end)) end++;
      if (end - i > 1) rows.push(gap(layout, from + i, to + i, end - i));
      else for (let j = i; j < Math.max(end, i + 1); j++) rows.push(...layout.same(from + j, to + j));
      i = Math.max(end, i + 1);
    }
    return rows;
  });
  const buildDiff = (holder) => {
    const { diff: child } = holder.dataset;
    holder.replaceChildren();
    for (const { before, after, blocks, hunks, heat } of data.diffs[child] ?? []) {
      const most = Math.max(hottest(heat[0], before), hottest(heat[1], after), 1e-9);
      const cold = !data.heat[heat[0]]?.[before] && !data.heat[heat[1]]?.[after];
      const of = { before, after, child, heat, most, cold, hunks };
      const layout = narrow.matches ? unified(of) : sideBySide(of);
      const pair = before === after ? after : `${before ?? "no file"} to ${after ?? "no file"}`;
      const pairs = blocks.flatMap((block) => block.length === 2 ? block[0] : []);
      const looks = [narrow.matches ? "unified" : "", cold ? "cold" : ""].filter(Boolean);
      const grid = make("table", { class: looks.join(" ") },
        make("caption", { class: "hidden" }, `${pair}: ${heat[0]} beside ${heat[1]}, with the stall time of each line as a share of all samples`),
        make("thead", {}, make("tr", {}, ...layout.head())), make("tbody", {}, ...diffRows(of, layout, blocks)));
      const count = (at) => pairs.filter((each) => each[at] !== null).length;
      holder.append(...boxed(grid, `Diff of ${child}, ${pair}`,
        `${pair}: ${count(1)} lines added, ${count(0)} removed.${cold ? "" : " Strips: stall time as a share of all samples of each version."}`));
    }
  };
  narrow.addEventListener("change", () => {
    for (const holder of document.querySelectorAll("[data-diff]")) if (!later.has(holder)) buildDiff(holder);
  });

  // The source view of one version
  const buildSource = (holder) => {
    const { source: name, of: variant } = holder.dataset;
    const most = Math.max(hottest(variant, name), 1e-9);
    const body = make("tbody");
    const warm = Boolean(data.heat[variant]?.[name]);
    file(name).forEach((line, n) => {
      const heat = heatOf(variant, name, n);
      const share = shareOf(heat);
      const top = share ? data.reasons[heat[0][0][0]].label : "";
      const cells = warm ? [
        heatCell(variant, name, n, most, ""), make("td", { class: "why" }, top),
        make("td", { class: "run" }, heat?.[2] ? percent(heat[2]) : ""),
      ] : [];
      body.append(make("tr", {}, ...cells, make("td", { class: "number" }, String(n + 1)), make("td", { class: "text" }, ...painted(line))));
    });
    const heads = warm ? [["heat", "stalls"], ["why", "mostly"], ["run", "executed"]] : [];
    const grid = make("table", {},
      make("caption", { class: "hidden" }, `${name} of ${variant} by line`),
      make("thead", {}, make("tr", {}, ...heads.map(([kind, word]) => make("th", { scope: "col", class: kind }, word || make("span", { class: "hidden" }, "line"))),
        make("th", { scope: "col", class: "number" }, make("span", { class: "hidden" }, "line")), make("th", { scope: "col", class: "text" }, name))), body);
    const note = warm ? "stalls: share of all samples; mostly: the largest reason; executed: share of warp instructions." : "";
    holder.replaceChildren(...boxed(grid, `Source ${name} of ${variant}`, note));
  };

  // Diffs and sources are built when there is time, or at once where they are wanted
  const later = new Map();
  const build = (holder) => {
    const act = later.get(holder);
    later.delete(holder);
    act?.(holder);
  };
  const buildAll = (selector) => {
    for (const holder of [...later.keys()]) if (holder.matches(selector)) build(holder);
  };
  for (const holder of document.querySelectorAll("[data-diff]")) later.set(holder, buildDiff);
  for (const holder of document.querySelectorAll("[data-source]")) later.set(holder, buildSource);
  document.addEventListener("toggle", (event) => {
    if (event.target.open) event.target.querySelectorAll("[data-source]").forEach(build);
  }, true);
  const idle = (act) => globalThis.requestIdleCallback ? requestIdleCallback(act, { timeout: 200 }) : setTimeout(act, 20);
  const next = () => {
    const [holder] = later.keys();
    if (!holder) return;
    build(holder);
    idle(next);
  };
  addEventListener("load", () => idle(next));

  // On paper everything is open
  let opened = [];
  addEventListener("beforeprint", () => {
    buildAll("*");
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const each of opened) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of opened) each.open = false; });

  // Light and dark
  const theme = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const label = () => { theme.textContent = isDark() ? "Light" : "Dark"; theme.setAttribute("aria-label", `Switch to the ${isDark() ? "light" : "dark"} theme`); };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("workbench-theme", root.dataset.theme); } catch { /* a file may have no storage */ }
    label();
  });
  dark.addEventListener("change", label);
  label();

  readHash();
  show(place.variant);
  if (place.anchor) reach(place.anchor, "auto");
})();
