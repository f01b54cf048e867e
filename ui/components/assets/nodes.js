// The nodes that draft for a run, in the pipeline picture: each with its figures and the network time above
// which plain decoding is faster.

import { h, setText, drawKeyed, entries } from "./dom.js";
import { numberText, ms, percent, plural, prose } from "./text.js";

const STATES = { in_time: "drafts in time", ahead: "drafts ahead", late: "late", absent: "not there", "": "no draft requested yet" };
const HEAD = ["node", "SSMs", "now", "round trip", "of it wire", "deadline", "in time", "ahead", "late", "absent", "starts", "pays up to a wire of"];
const EVEN = "Pays up to a wire of: predicted from this run's times, the time on the wire at which a round takes as long "
  + "for each token as plain decoding. A node that is late or not there is left out of that round; the text is the same.";

export function createNodes(panel) {
  const words = h("p", { class: "ss-nodes-said" });
  const rows = h("ul", { class: "ss-nodes-rows" });
  const means = h("p", { class: "ss-nodes-means" }, EVEN);
  const box = h("div", { class: "ss-nodes", role: "region", "aria-label": "Nodes", hidden: true }, words, rows, means);
  const cache = new Map();
  panel.body.append(box);
  return {
    draw(value) {
      const nodes = entries(value.nodes);
      box.hidden = !nodes.length;
      setText(words, nodes.length ? summary(nodes.map(([, node]) => node)) : "");
      drawKeyed(rows, cache, nodes, {
        key: ([key]) => key,
        make: () => h("li", {}, h("b"), h("dl", {}, HEAD.slice(1).map((name) => h("div", {}, h("dt", {}, name), h("dd"))))),
        update: (row, [, node]) => {
          row.dataset.state = node.state;
          const [name, ...figures] = cells(node, time, pays).map(prose);
          setText(row.firstChild, name);
          figures.forEach((text, i) => {
            const figure = row.lastChild.children[i];
            figure.hidden = !text;
            setText(figure.lastChild, text);
          });
        },
      });
    },
  };
}

// Which nodes are missing now; if none, the share of requests that nodes answered in time.
function summary(nodes) {
  const missing = nodes.filter(({ state }) => state === "late" || state === "absent");
  if (missing.length) {
    const which = missing.map(({ node, state }) => `${node} (${STATES[state]})`).join(", ");
    const whose = missing.length > 1 ? "their" : "its";
    return prose(`${plural(missing.length, "node")} of ${nodes.length} missing: ${which}. Rounds go on without ${whose} drafts.`);
  }
  const sum = (count) => nodes.reduce((total, node) => total + count(node), 0);
  const ahead = sum((node) => node.ahead);
  const answered = sum((node) => node.in_time) + ahead;
  const requests = answered + sum((node) => node.late + node.absent);
  if (!requests) return `${plural(nodes.length, "node")}; none asked yet.`;
  const early = ahead ? `, ${ahead} of them before the round began` : "";
  return `${plural(nodes.length, "node")}; ${percent(answered / requests)} of ${plural(requests, "request")} answered in time${early}.`;
}

const time = (value) => (value == null ? "" : ms(value));

function pays(wire) {
  if (wire == null) return "";
  return wire > 0 ? `${ms(wire)} (predicted)` : "none (predicted)";
}

function cells(node, time, limit) {
  const counts = [node.in_time, node.ahead, node.late, node.absent, node.starts].map(String);
  const times = [node.trip, node.wire, node.deadline].map(time);
  return [node.node, node.ssms, STATES[node.state] ?? node.state, ...times, ...counts, limit(node.even)];
}

// The nodes for the panel's table form; null without nodes.
export function nodesTable(value) {
  const nodes = entries(value.nodes).map(([, node]) => node);
  if (!nodes.length) return null;
  const digits = (value) => (value == null ? "" : numberText(value, 2));
  const rows = nodes.map((node) => cells(node, digits, digits));
  const head = HEAD.map((name, i) => ([3, 4, 5, 11].includes(i) ? `${name} (ms)` : name));
  return { caption: "Nodes", head, rows };
}
