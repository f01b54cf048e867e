// A table of acceptance, with a row for each pair of prompt and settings; filtered, grouped and sorted here.

import { h, entries, set } from "./dom.js";
import { COLUMNS, groupLine, lineOf } from "./prompt_row.js";
import { createFilters } from "./prompt_filters.js";
import { fitToRows } from "./table_rows.js";
import { plural, prose } from "./text.js";

const NO_DOMAIN = "no domain";

export function create(panel) {
  const note = h("p", { class: "ss-placeholder" });
  const table = h("table", { class: "ss-prompts-table" });
  const box = fitToRows(h("div", { class: "ss-scroll ss-prompts-box", tabindex: 0, role: "region", "aria-label": `${panel.title}: rows` }, table), table);
  const filters = createFilters(() => panel.redraw());
  const sort = { by: "", down: true };
  const more = h("button", { type: "button", class: "ss-prompts-more", "data-noexport": true, onclick: () => unfold(!panel.section.hasAttribute("data-more")) });
  panel.words.after(more);
  panel.words.setAttribute("aria-live", "polite");
  panel.body.append(filters.bar, note, box);
  panel.finishTools();

  function sortBy({ key, number }) {
    if (sort.by !== key) Object.assign(sort, { by: key, down: Boolean(number) || key === "positions" });
    else sort.down = !sort.down;
    panel.redraw();
  }

  function unfold(all) {
    set(panel.section, "data-more", all);
    set(more, "aria-expanded", String(all));
    more.textContent = all ? "less ▴" : "more ▾";
  }
  unfold(false);

  return {
    draw(value) {
      const all = entries(value.rows).map(([, row]) => row);
      filters.offer(value, all);
      const rows = all.filter(filters.passes);
      panel.say(all.length ? `${value.gains ?? ""} ${summary(rows, all)} ${value.words ?? ""}`.trim() : "");
      more.hidden = !all.length;
      set(panel.section, "data-empty", !all.length);
      note.textContent = all.length ? "No row matches these filters." : (value.empty ?? "Nothing measured yet.");
      note.hidden = rows.length > 0;
      box.hidden = !rows.length;
      const focused = panel.body.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
      table.replaceChildren(...(rows.length ? parts(panel, rows, sort, filters.group(), sortBy) : []));
      if (focused) table.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
    },
  };
}

function summary(rows, all) {
  const prompts = count(rows, "id");
  const words = rows.length === prompts ? plural(prompts, "prompt") : `${plural(rows.length, "row")} of ${plural(prompts, "prompt")}`;
  const [first] = rows;
  const alike = first && count(rows, "settings") === 1 ? ` All with ${first.settings}: ${first.detail}.` : "";
  return `${words}${rows.length < all.length ? `, ${rows.length} of ${all.length} rows` : ""}.${alike}`;
}

function parts(panel, rows, sort, by, sortBy) {
  // Settings have a column if they differ, unless groups have them as headings.
  const withSettings = by !== "settings" && count(rows, "settings") > 1;
  const columns = COLUMNS.filter(({ key }) => key !== "settings" || withSettings);
  const groups = groupRows(rows, by, sort);
  const named = groups.length > 1 || groups.some(({ name }) => name && name !== NO_DOMAIN);
  const caption = h("caption", { class: "ss-prompts-caption" }, `${panel.title}, ${plural(rows.length, "row")}`);
  const bodies = groups.map(({ name, rows: members, alike }) => h(
    "tbody", {}, named && name ? groupLine(columns, name, members, alike) : null,
    members.map((row) => lineOf(panel, columns, row)),
  ));
  return [caption, head(columns, sort, sortBy), ...bodies];
}

const count = (rows, key) => new Set(rows.map((row) => row[key])).size;

// A group shows mean figures only if all its rows have the same settings. Groups are in the order of their first rows;
// without sorting, the group without a domain is last.
function groupRows(rows, by, sort) {
  const nameOf = {
    domain: (row) => row.domain || NO_DOMAIN,
    settings: (row) => row.settings,
    prompt: (row) => row.id,
    nothing: () => "",
  }[by];
  const groups = new Map();
  for (const row of sortRows(rows, sort)) {
    const name = nameOf(row);
    if (!groups.has(name)) groups.set(name, { name: by === "prompt" ? row.prompt : name, rows: [], last: !sort.by && by === "domain" && !row.domain });
    groups.get(name).rows.push(row);
  }
  return [...groups.values()]
    .map((group) => ({ ...group, alike: count(group.rows, "settings") === 1 }))
    .sort((a, b) => a.last - b.last);
}

function sortRows(rows, { by, down }) {
  if (!by) return rows;
  const sign = down ? -1 : 1;
  const of = (row) => (by === "positions" ? (row.positions[0] ?? null) : row[by]);
  const nothing = (value) => value === null || value === undefined || value === "";
  // In both directions rows without a measurement are last.
  return [...rows].sort((a, b) => {
    const [left, right] = [of(a), of(b)];
    if (nothing(left) || nothing(right)) return nothing(left) - nothing(right);
    return sign * (typeof left === "string" ? left.localeCompare(right, undefined, { numeric: true }) : left - right);
  });
}

function head(columns, sort, sortBy) {
  const heads = columns.map((column) => {
    const isSorted = sort.by === column.key;
    const glyph = isSorted ? (sort.down ? " ▼" : " ▲") : "";
    const button = h("button", {
      type: "button", class: "ss-prompts-sort", title: column.means, "data-focus": `sort-${column.key}`, onclick: () => sortBy(column),
    }, prose(column.label) + glyph);
    const cell = h("th", { scope: "col", "data-number": Boolean(column.number) }, button);
    set(cell, "aria-sort", isSorted ? (sort.down ? "descending" : "ascending") : "none");
    return cell;
  });
  return h("thead", {}, h("tr", {}, heads));
}
