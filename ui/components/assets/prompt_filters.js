// The filters above the table of prompts: words, settings, domain, drafter, and the grouping.

import { h, entries } from "./dom.js";

const GROUPS = ["domain", "settings", "prompt", "nothing"];
const NONE = " "; // stands for "no domain"; no domain has this name

export function createFilters(onChange) {
  const find = h("input", { type: "search", "aria-label": "Prompt has", class: "ss-prompts-find", oninput: onChange });
  const [settings, domain, drafter] = ["Settings", "Domain", "Drafter"].map((words) => createMenu(words, onChange));
  const group = h("select", { "aria-label": "Group by", onchange: onChange }, GROUPS.map((name) => h("option", { value: name }, name)));
  const bar = h(
    "div", { class: "ss-prompts-filters", "data-noexport": true },
    h("label", {}, h("span", {}, "Prompt has"), find), settings.label, domain.label, drafter.label, h("label", {}, h("span", {}, "Group by"), group),
  );
  let of = null;
  return {
    bar,
    group: () => group.value,
    // Sets the menus' choices. If the table (`of`) has changed, its `chosen` settings are selected.
    offer(value, rows) {
      bar.hidden = rows.length < 2;
      if (value.of !== of) {
        of = value.of;
        find.value = "";
        settings.begin(value.chosen ?? "");
        domain.begin("");
        drafter.begin("");
      }
      settings.offer(rows.map((row) => row.settings));
      domain.offer(rows.map((row) => row.domain || NONE));
      drafter.offer(rows.flatMap((row) => entries(row.drafters).map(([, name]) => name)));
    },
    passes(row) {
      const words = find.value.trim().toLowerCase();
      return (!words || row.prompt.toLowerCase().includes(words))
        && settings.passes([row.settings]) && domain.passes([row.domain || NONE])
        && drafter.passes(entries(row.drafters).map(([, name]) => name));
    },
  };
}

// A menu, hidden if there is nothing to choose. A chosen name that is missing from the choices is chosen again when it is back.
function createMenu(words, onChange) {
  const select = h("select", { "aria-label": words, onchange: () => { wanted = select.value; onChange(); } });
  const label = h("label", {}, h("span", {}, words), select);
  let wanted = "";
  return {
    label,
    begin: (name) => { wanted = name; },
    passes: (names) => !select.value || names.includes(select.value),
    offer(all) {
      const names = ["", ...new Set(all)];
      if (JSON.stringify([...select.options].map(({ value }) => value)) !== JSON.stringify(names)) {
        select.replaceChildren(...names.map((name) => h("option", { value: name }, name === NONE ? "no domain" : name || "all")));
      }
      select.value = names.includes(wanted) ? wanted : "";
      label.hidden = names.length < 3;
    },
  };
}
