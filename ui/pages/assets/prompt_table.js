// Acceptance prompt by prompt: grouped by domain, sorted by any column, a click opens the run. Text nodes only.
const root = element.querySelector(".sp-shell");
const COLUMNS = [
  { key: "prompt", title: "prompt", hint: "A click opens its latest run." },
  { key: "mean", title: "tokens a pass", hint: "New tokens per pass of the LLM: mean acceptance length.", digits: 2 },
  { key: "rate", title: "accepted", hint: "Share of the drafted tokens (by depth) that were accepted.", percent: true },
  { key: "positions", title: "by position", hint: "Share of rounds that accepted more than 0, 1, 2, ... drafted tokens." },
  { key: "best", title: "best drafter", hint: "Who proposed most of the accepted tokens." },
  { key: "rejected", title: "rejected most", hint: "After how many accepted tokens most rejections came." },
  { key: "speed", title: "tokens/s", hint: "Median over the prompt's runs.", digits: 1 },
  { key: "ratio", title: "speed-up", hint: "Beside plain decoding of the same prompt, measured in the same study.", digits: 2, unit: "x" },
];
const NUMBERS = ["mean", "rate", "rejected", "speed", "ratio"];
const order = { key: "", down: true };
let chosen = ""; // the configuration whose table is shown; empty: the first

function made(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}
function shown(column, value) {
  if (value === null || value === undefined || value === "") return "–";
  if (column.percent) return `${(100 * value).toFixed(0)} %`;
  return column.digits === undefined ? String(value) : `${value.toFixed(column.digits)}${column.unit || ""}`;
}
function numbered(dict) {
  return Object.entries(dict || {}).sort((a, b) => a[0] - b[0]).map(([, value]) => value);
}
function spark(rates) {
  const ns = "http://www.w3.org/2000/svg";
  const box = document.createElementNS(ns, "svg");
  const width = 84, height = 22, step = Math.min(10, width / Math.max(1, rates.length));
  box.setAttribute("viewBox", `0 0 ${width} ${height}`);
  box.setAttribute("class", "sp-spark");
  box.setAttribute("role", "img");
  const words = rates.map((rate, i) => `position ${i + 1}: ${(100 * rate).toFixed(0)} %`).join(", ");
  box.setAttribute("aria-label", words || "nothing was accepted");
  const title = document.createElementNS(ns, "title");
  title.textContent = words || "nothing was accepted";
  box.append(title);
  rates.forEach((rate, i) => {
    const bar = document.createElementNS(ns, "rect");
    const tall = Math.max(1, rate * height);
    for (const [name, value] of Object.entries({ x: i * step, y: height - tall, width: Math.max(1, step - 1), height: tall })) {
      bar.setAttribute(name, value);
    }
    box.append(bar);
  });
  return box;
}
function promptCell(row) {
  const cell = made("td", "sp-prompt-text");
  const runs = numbered(row.runs);
  const button = made("button", "sp-open");
  button.type = "button";
  button.append(made("b", "", row.prompt));
  button.disabled = !runs.length;
  button.addEventListener("click", () => trigger("select", { run: runs[runs.length - 1] }));
  cell.append(button);
  if (row.same === "differs") cell.append(made("span", "sp-differs", "≠ text differs from plain decoding's"));
  return cell;
}
function bestCell(row) {
  const cell = made("td", "sp-prompt-best");
  if (!row.best) cell.textContent = "–";
  else {
    const dot = made("span", "sp-mark", row.slot < 0 ? "·" : String.fromCharCode(65 + row.slot));
    if (row.slot >= 0) dot.style.background = `var(--ss-slot-${row.slot})`;
    cell.append(dot, made("span", "", row.best));
  }
  return cell;
}
function line(row) {
  const tr = made("tr");
  for (const column of COLUMNS) {
    if (column.key === "prompt") tr.append(promptCell(row));
    else if (column.key === "best") tr.append(bestCell(row));
    else if (column.key === "positions") {
      const cell = made("td");
      cell.append(spark(numbered(row.positions)));
      tr.append(cell);
    } else tr.append(made("td", "sp-number", shown(column, row[column.key])));
  }
  return tr;
}
function groupLine(group) {
  const tr = made("tr", "sp-group");
  for (const column of COLUMNS) {
    if (column.key === "prompt") {
      const cell = made("th", "", `${group.domain} (${group.prompts} ${group.prompts === 1 ? "prompt" : "prompts"}, mean)`);
      cell.scope = "rowgroup";
      tr.append(cell);
    } else tr.append(made("td", "sp-number", column.key in group ? shown(column, group[column.key]) : ""));
  }
  return tr;
}
function compared(a, b) {
  const key = order.key;
  const left = key === "positions" ? numbered(a.positions)[0] ?? -1 : a[key];
  const right = key === "positions" ? numbered(b.positions)[0] ?? -1 : b[key];
  if (left === null || right === null) return (left === null) - (right === null); // what was not measured goes last
  const sign = order.down ? -1 : 1;
  return sign * (typeof left === "string" ? left.localeCompare(right) : left - right);
}
function head() {
  const tr = made("tr");
  for (const column of COLUMNS) {
    const th = made("th", NUMBERS.includes(column.key) ? "sp-number" : "");
    th.scope = "col";
    const sorted = order.key === column.key;
    th.setAttribute("aria-sort", sorted ? (order.down ? "descending" : "ascending") : "none");
    const button = made("button", "sp-sort", `${column.title}${sorted ? (order.down ? " ▼" : " ▲") : ""}`);
    button.type = "button";
    button.title = column.hint;
    button.addEventListener("click", () => {
      order.down = sorted ? !order.down : column.key !== "prompt" && column.key !== "best";
      order.key = column.key;
      draw();
      root.querySelector(`th[aria-sort="${order.down ? "descending" : "ascending"}"] button`)?.focus();
    });
    th.append(button);
    tr.append(th);
  }
  const thead = made("thead");
  thead.append(tr);
  return thead;
}
function menu(tables, shown) {
  const label = made("label", "sp-prompt-menu", "Configuration ");
  const select = made("select");
  for (const table of tables) {
    const option = made("option", "", table.name);
    option.value = table.name;
    option.selected = table === shown;
    select.append(option);
  }
  select.addEventListener("change", () => {
    chosen = select.value;
    draw();
    root.querySelector("select")?.focus();
  });
  label.append(select);
  return label;
}
function body(rows, group) {
  const part = made("tbody");
  part.append(groupLine(group));
  const members = rows.filter((row) => row.domain === group.domain);
  if (order.key) members.sort(compared);
  for (const row of members) part.append(line(row));
  return part;
}
function draw() {
  const value = props.value || {};
  const tables = numbered(value.tables);
  const shown = tables.find((table) => table.name === chosen) || tables[0];
  const rows = numbered(shown?.rows);
  if (!rows.length) {
    root.replaceChildren(made("p", "sp-empty", value.empty || "Nothing measured yet."));
    return;
  }
  const table = made("table", "sp-prompts");
  table.append(made("caption", "sp-sr", `${shown.name}: acceptance prompt by prompt`), head());
  for (const group of numbered(shown.groups)) table.append(body(rows, group));
  const scroller = made("div", "sp-scroll");
  scroller.tabIndex = 0;
  scroller.setAttribute("role", "region");
  scroller.setAttribute("aria-label", "Acceptance prompt by prompt");
  scroller.append(table);
  root.replaceChildren(...(tables.length > 1 ? [menu(tables, shown)] : []), scroller);
}
draw();
watch("value", draw);
