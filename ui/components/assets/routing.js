// Which SSMs draft, round by round: a row for each SSM, a column for each round, shaded by score.

import { h, s, set, setText, entries, last } from "./dom.js";
import { frame, text } from "./minichart.js";
import { textWidth } from "./measure.js";
import { byKey, badge } from "./palette.js";
import { card, hide, show } from "./tip.js";
import { createParts, partsTable } from "./parts.js";
import { createRegret, regretTable } from "./regret.js";
import { numberText, plain, prose, roundName } from "./text.js";

const ROW_HEIGHT = 2;  // in font sizes
const MAX_STEP = 88;  // pixels: the widest column of a round
const NAMES_FROM = 440;  // pixels at font size 12: in a narrower picture rows have letters alone
const MAX_NAME = 40;  // characters
const SHADES = [0.32, 0.48, 0.64, 0.82, 1];
const ROUNDS_PER_LINE = 6;  // if switches are more frequent, they have marks but no lines
// The bars of each part (a key of ROLES), which identify it without colour: [from, to], -1 the row's top, 1 its bottom.
const SHAPES = { routed: [[-0.8, 0.8]], explored: [[-0.8, -0.16], [0.16, 0.8]], waiting: [[-0.16, 0.16]], chosen: [[-0.8, -0.6], [0.6, 0.8]] };
const ROLES = {
  routed: "drafts", explored: "drafts, to be measured", chosen: "chosen, but nothing was drafted", waiting: "left out", lost: "lost",
};
const explorationText = (value) => `Chosen not by its score but to be measured: ${value.explores}`;

const UNCOUNTED = "Regret, what another choice of SSMs would have saved, is computed on request: each SSM then reads the whole text once.";

export function create(panel) {
  const chart = frame(panel, heatmap);
  const key = h("div", { class: "ss-routing-key", "aria-hidden": "true" });
  const note = h("p", { class: "ss-meant" });
  const cost = h("p", { class: "ss-routing-cost" });
  const regret = createRegret();
  const parts = createParts(panel);
  panel.body.append(parts.node, chart.node, key, cost, note, regret.node);
  const regretButton = panel.button("Regret", "Count afterwards what another choice of SSMs would have cost", () => panel.ask());
  panel.finishTools({ tableForm: true });
  addPointerHandlers(chart, panel);
  return {
    restyle: chart.restyle,
    draw(value) {
      set(panel.section, "data-routed", Boolean(value.rule));
      if (!value.rule) return;
      panel.say(value.sentence);
      const data = stripData(value);
      chart.node.style.setProperty("--ss-rows", data.rows.length);
      chart.draw(data);
      parts.draw(value);
      drawKey(key, value);
      setText(cost, prose(value.cost));
      regretButton.hidden = !value.ask || !panel.ask;
      regret.draw(value.regret ?? {});
      // If `value.parts` has entries, the text with their table (parts.js) explains the score.
      const score = entries(value.parts).length ? "" : `: ${prose(value.score)}`;
      const scored = value.scored ? `, ${prose(value.scored)}` : "";
      const uncounted = regretButton.hidden || value.regret?.sentence ? "" : ` ${UNCOUNTED}`;
      setText(note, `Right: scores of the selected round${scored}${score}.${uncounted}`);
    },
    table: (value) => [partsTable(value), tableOf(value), regretTable(value)],
  };
}

function stripData(value) {
  const badges = byKey(value);
  const rounds = entries(value.rounds).map(([number, cells]) => [Number(number), cells]);
  const rows = entries(value.ssms).map(([key]) => ({ ...badges.get(key), cells: rounds.map(([n, cells]) => [n, cells[key]]) }));
  return {
    rows, sel: value.sel, switches: Object.keys(value.switches ?? {}).map(Number), ranges: scoreRanges(rounds),
    first: rounds[0]?.[0] ?? 0, last: last(rounds)?.[0] ?? 0, label: prose(`${value.sentence} ${value.cost}`),
  };
}

// The lowest and the highest score of each round: a cell's shade shows where its score lies between them.
function scoreRanges(rounds) {
  return Object.fromEntries(rounds.map(([number, cells]) => {
    const scores = Object.values(cells).map(({ s: score }) => score);
    return [number, [Math.min(...scores), Math.max(...scores)]];
  }));
}

function shadeOf(score, [lowest, highest]) {
  const share = highest > lowest ? (score - lowest) / (highest - lowest) : 1;
  return Math.min(SHADES.length - 1, Math.floor(share * SHADES.length));
}

function layoutOf(value, { width, font }) {
  const named = width >= NAMES_FROM * (font / 12);
  const names = value.rows.map(({ name }) => (named ? textWidth(plain(name, MAX_NAME), `${font}px 'IBM Plex Sans'`) : 0));
  const left = 2.2 * font + Math.min(Math.max(...names), 0.3 * width);
  const right = width - 4.2 * font;
  const step = Math.min((right - left) / (value.last - value.first + 1), MAX_STEP);
  const top = 1.6 * font;
  const x = (round) => left + (round - value.first) * step;
  const y = (row) => top + (row + 0.5) * ROW_HEIGHT * font;
  return { named, left, right: x(value.last + 1), step, top, bottom: y(value.rows.length - 0.5), x, y, font };
}

function heatmap(value, place) {
  const layout = layoutOf(value, place);
  const parts = value.rows.flatMap((row, i) => [...rowHead(row, layout.y(i), layout), ...cells(row, i, value, layout), scoreLabel(row, i, value, layout)]);
  const switches = value.switches.filter((round) => round >= value.first);
  const hasLines = switches.length * ROUNDS_PER_LINE <= value.last - value.first + 1;
  parts.push(...switches.map((round) => switchMark(round, layout, hasLines)), ...ticks(value, layout));
  if (value.sel >= value.first && value.sel <= value.last) {
    const box = { x: layout.x(value.sel), width: layout.step, y: layout.top - 1, height: layout.bottom - layout.top + 2, rx: 3 };
    parts.push(s("rect", { class: "ss-routing-sel", ...box }));
  }
  const roundAt = (px) => Math.min(value.last, Math.max(value.first, Math.floor((px - layout.left) / layout.step) + value.first));
  const cell = (px, py) => (px < layout.left || px > layout.right || py < layout.top || py > layout.bottom
    ? null : { row: value.rows[Math.floor((py - layout.top) / (ROW_HEIGHT * layout.font))], round: roundAt(px) });
  return { parts, roundAtPx: Object.assign(roundAt, { cell }) };
}

function rowHead({ slot, letter, name }, y, { font, named, left }) {
  const side = 1.3 * font;
  const shown = named ? truncate(name, left - 2.2 * font + 1, font) : "";
  return [
    s(
      "g", { class: "ss-svg-badge", "data-slot": slot % 8 },
      s("rect", { x: 0, y: y - side / 2, width: side, height: side, rx: 3 }),
      s("text", { x: side / 2, y, "font-size": font, "text-anchor": "middle", "dominant-baseline": "central" }, letter),
    ),
    text(shown, side + 0.4 * font, y, { font }, { class: "ss-routing-name" }),
  ];
}

function truncate(name, room, font) {
  let shown = plain(name, MAX_NAME);
  while (shown.length > 3 && textWidth(shown, `${font}px 'IBM Plex Sans'`) > room) shown = `${shown.slice(0, -2)}…`;
  return shown;
}

// One path for each pair of part and shade in a row.
function cells({ cells: all, color, name }, row, value, layout) {
  const paths = new Map();
  const gap = Math.min(1, layout.step * 0.12);
  for (const [round, cell] of all) {
    if (!cell) continue;
    const shade = shadeOf(cell.s, value.ranges[round]);
    const key = `${cell.r} ${cell.r === "lost" ? 0 : shade}`;
    const [left, right] = [layout.x(round) + gap, layout.x(round + 1) - gap].map((px) => px.toFixed(2));
    paths.set(key, (paths.get(key) ?? "") + (cell.r === "lost" ? cross(round, row, layout) : boxes(SHAPES[cell.r] ?? [], [left, right], row, layout)));
  }
  return [...paths].map(([key, d]) => {
    const [part, shade] = key.split(" ");
    const path = s("path", { class: `ss-routing-${part}`, d, "data-ssm": name, "fill-opacity": part === "lost" ? null : SHADES[shade] });
    if (part !== "lost") path.style.fill = color;
    return path;
  });
}

function boxes(shape, [left, right], row, { y, font }) {
  const half = (ROW_HEIGHT * font) / 2;
  return shape.map(([from, to]) => `M${left} ${(y(row) + from * half).toFixed(1)}H${right}V${(y(row) + to * half).toFixed(1)}H${left}Z`).join("");
}

function cross(round, row, { x, y, step, font }) {
  const [middle, arm] = [x(round) + step / 2, Math.min(step * 0.4, 0.35 * font)];
  const [left, right, up, down] = [middle - arm, middle + arm, y(row) - arm, y(row) + arm].map((px) => px.toFixed(1));
  return `M${left} ${up}L${right} ${down}M${left} ${down}L${right} ${up}`;
}

// The score at the right: of the selected round, else of the latest.
function scoreLabel({ cells: all }, row, value, layout) {
  const [, cell] = all.find(([round]) => round === value.sel) ?? last(all) ?? [];
  return text(cell ? scoreText(cell.s) : "", layout.right + 0.5 * layout.font, layout.y(row), layout, { class: "ss-mini-tick" });
}

const scoreText = (score) => numberText(score, score >= 100 ? 0 : score >= 10 ? 1 : 2);

// A round in which other SSMs draft than before: a mark above its column and, with `hasLine`, a line at its left.
function switchMark(round, { x, top, bottom, font }, hasLine) {
  const [left, half, tip] = [x(round), 0.36 * font, top - 0.15 * font].map((px) => Number(px.toFixed(1)));
  const d = `M${left} ${tip}l${-half} ${-1.5 * half}h${2 * half}Z${hasLine ? `M${left} ${tip}V${bottom.toFixed(1)}` : ""}`;
  return s("path", { class: "ss-routing-switch", d, "data-round": round });
}

function ticks({ first, last: end }, { x, step, bottom, font }) {
  const every = [1, 2, 5, 10, 20, 50, 100, 200, 500].find((count) => count * step > 2.6 * font) ?? 1000;
  const labels = [];
  for (let round = first; round <= end; round += 1) {
    if ((round + 1) % every && round !== first) continue;
    if (round === first && (first + 1) % every && every - ((first + 1) % every) < every / 2) continue;
    labels.push(text(String(round + 1), x(round) + step / 2, bottom + 0.9 * font, { font }, { class: "ss-mini-tick", "text-anchor": "middle" }));
  }
  return labels;
}

function drawKey(key, value) {
  const parts = new Set(Object.values(value.rounds ?? {}).flatMap((cells) => Object.values(cells).map(({ r: part }) => part)));
  const shown = ["routed", ...(value.explores || parts.has("explored") ? ["explored"] : []), ...(parts.has("chosen") ? ["chosen"] : []), "waiting", ...(parts.has("lost") ? ["lost"] : [])];
  const signature = shown.join();
  if (key.ssShown === signature) return;
  key.ssShown = signature;
  key.replaceChildren(
    ...shown.map((part) => h("span", { title: part === "explored" ? explorationText(value) : null }, h("span", { class: "ss-routing-sample", "data-part": part }, part === "lost" ? "×" : h("i"), h("i")), ROLES[part])),
    h("span", {}, h("span", { class: "ss-routing-mark" }, "▼"), "from here on other SSMs draft"),
    h("span", {}, h("span", { class: "ss-routing-ramp" }, SHADES.map((opacity) => h("i", { style: `opacity:${opacity}` }))), "low to high score in its round"),
  );
}

function addPointerHandlers(chart, panel) {
  const { node } = chart;
  const cellAt = (event) => {
    const box = node.firstChild.getBoundingClientRect();
    return chart.roundAtPx()?.cell(event.clientX - box.left, event.clientY - box.top) ?? null;
  };
  node.addEventListener("click", (event) => {
    const hit = cellAt(event);
    if (hit) panel.select(hit.round);
  });
  node.addEventListener("pointermove", (event) => {
    const hit = cellAt(event);
    const cell = hit?.row?.cells.find(([round]) => round === hit.round)?.[1];
    if (!cell) return hide();
    const { clientX: left, clientY: top } = event;
    show(node, tipOf(hit, cell, panel.value), { left, top, bottom: top });
  });
  node.addEventListener("pointerleave", hide);
}

function tipOf({ row, round }, { r: part, s: score }, value) {
  const heading = h("span", {}, badge(row), ` ${row.name}`);
  return card(roundName(round), [heading, ROLES[part] ?? part, ...(part === "explored" ? [explorationText(value)] : [])], [["score", scoreText(score)], ...(value.switches?.[round] ? [["", "other SSMs than before"]] : [])]);
}

function tableOf(value) {
  if (!value.rule) return null;
  const ssms = entries(value.ssms);
  let reason = "";
  const rows = entries(value.rounds).map(([round, cells]) => {
    reason = value.reasons?.[round] ?? reason;
    const parts = ssms.map(([key]) => (cells[key] ? `${ROLES[cells[key].r] ?? cells[key].r}, ${scoreText(cells[key].s)}` : "–"));
    return [Number(round) + 1, ...parts, value.switches?.[round] ? "changed" : "", prose(reason)];
  });
  return { caption: "Part and score of each SSM", head: ["round", ...ssms.map(([, name]) => name), "choice", "why"], rows };
}
