// What the tree picture draws, from the component's value: items, words and table.

import { entries } from "./dom.js";
import { byKey } from "./palette.js";
import { TOKEN_KINDS } from "./glossary.js";
import { plain, plural, prob, inQuotes, roundName } from "./text.js";

export const STAGES = [
  ["draft", "Draft", "the small models guess ahead"],
  ["combine", "Combine", "one tree out of all drafts"],
  ["verify", "Verify", "one pass of the LLM checks it all"],
  ["commit", "Commit", "what was accepted becomes text"],
];

export const MEANING = {
  root: "The last committed token: the tree grows from here",
  accepted: "Accepted: the LLM chose this token too",
  rejected: "Rejected: the LLM did not choose this token",
  not_reached: "Not reached: this branch had ended before",
  pending: "Not verified yet",
  draft: "One model's draft, not yet combined",
  dropped: "Drafted, but dropped before the LLM saw it",
  ...Object.fromEntries(["recovered", "bonus", "plain"].map((kind) => [kind, TOKEN_KINDS[kind].means])),
};

const OWN_LABEL = { recovered: "LLM wanted", drew: "LLM drew", bonus: "bonus", plain: "LLM writes" };

const AGREED = 3;  // from this many drafters on, one badge for all is shorter than their badges

// [{key, parent, kind, text, by: [drafter], p, label, lead, node, agreed, ...}]; `node` is the number to select. `agreed`:
// AGREED or more drafters drafted in the round, all proposed the token, and their letters are consecutive.
export function items(value) {
  if (!value.root || value.root.t == null) return [];
  const drafters = byKey(value);
  const root = { key: "-1", parent: null, kind: "root", text: value.root.t, by: [], p: null, label: "so far", node: -1 };
  const drafts = entries(value.drafts);
  if (value.stage === "draft" && drafts.length) return [root, ...separate(drafts, drafters)];
  const [nodes, lost] = [treeNodes(value, drafters), droppedNodes(value, drafters)];
  const drafting = [...new Set([...nodes, ...lost].flatMap(({ by }) => by))];
  const slots = drafting.map(({ slot }) => slot);
  const asRange = drafting.length >= AGREED && Math.max(...slots) - Math.min(...slots) + 1 === drafting.length;
  for (const item of [...nodes, ...lost]) item.agreed = asRange && item.by.length === drafting.length;
  // The LLM's own token comes before its siblings.
  const llmTokens = own(value);
  const after = (key) => llmTokens.filter((item) => item.parent === key);
  return [root, ...after("-1"), ...nodes.flatMap((item) => [item, ...after(item.key)]), ...lost];
}

function separate(drafts, drafters) {
  return drafts.flatMap(([key, nodes]) => {
    const drafter = drafters.get(key);
    return entries(nodes).map(([j, node], place) => ({
      key: `d${key}.${j}`, parent: node.parent < 0 ? "-1" : `d${key}.${node.parent}`, kind: "draft", text: node.t,
      by: [drafter].filter(Boolean), p: node.score, label: null, node: null, values: node,
      lead: place === 0 ? 0.45 : 0, heading: place === 0 ? drafter : null,
    }));
  });
}

// `by` of a fused node: the one drafter whose token it is.
function treeNodes(value, drafters) {
  return entries(value.nodes).map(([i, node]) => ({
    key: i, parent: String(node.parent), kind: node.outcome ?? "pending", text: node.t, trunk: node.trunk === true,
    by: (node.origin === undefined ? entries(node.by).map(([key]) => key) : [node.origin]).map((key) => drafters.get(key)).filter(Boolean),
    p: node.lp, label: null, node: Number(i), values: node,
  }));
}

export const isFused = (value) => Object.values(value.nodes ?? {}).some((node) => node.origin !== undefined);

// The drafters that proposed the item, in drafter order; for a fused node also the drafters that were fed it.
export const offerersOf = (item, value) => {
  const drafters = byKey(value);
  return item.values?.origin === undefined ? item.by : entries(item.values.by).map(([key]) => drafters.get(key)).filter(Boolean);
};

// Dropped tokens whose parent is unknown cannot be drawn.
function droppedNodes(value, drafters) {
  return entries(value.dropped).filter(([, node]) => node.parent != null).map(([k, node]) => ({
    key: `d${k}`, parent: String(node.parent), kind: "dropped", text: node.t,
    by: entries(node.by).map(([key]) => drafters.get(key)).filter(Boolean), p: null, label: null, node: null, values: node,
  }));
}

function own(value) {
  const { own: token, stage } = value;
  if (!token || token.t == null || token.kind === "none" || stage === "draft" || stage === "combine") return [];
  return [{
    key: "own", parent: String(token.after ?? -1), kind: token.kind, text: token.t, by: [], p: token.p,
    label: OWN_LABEL[token.drew && token.kind === "recovered" ? "drew" : token.kind] ?? "LLM", node: null, values: token,
  }];
}

export function words(value, list) {
  if (!list.length) return "The tree of the selected round will be drawn here.";
  const nodes = Object.values(value.nodes ?? {});
  if (!hasBegun(value)) return "The text so far is the prompt; nothing is drafted yet.";
  if (!nodes.length && !Object.keys(value.drafts ?? {}).length) return plainWords(value);
  if (value.stage === "draft") return draftWords(value, nodes);
  if (value.stage === "combine") return combineWords(value, nodes);
  const accepted = nodes.filter((node) => node.outcome === "accepted").length;
  if (value.stage === "commit") {
    const count = value.committed ?? accepted + (value.own ? 1 : 0);
    const [drafted, own] = [Math.min(accepted, count), Math.max(0, count - accepted)];
    return `One pass of the LLM brought ${plural(count, "token")}: ${drafted} drafted, ${own} its own. ${value.why ?? ""}`.trim() + dottedWords(value);
  }
  return `One pass of the LLM checked ${plural(nodes.length, "node")} and accepted ${accepted}. ${ownWords(value)}`.trim() + dottedWords(value);
}

const dottedWords = ({ dropped: lost, words: terms }) => (Object.keys(lost ?? {}).length ? ` Dotted: ${terms?.dropped_short ?? "dropped"}.` : "");

const hasBegun = ({ round }) => round != null && round >= 0;

export const heading = (value) => (hasBegun(value) ? roundName(value.round) : value.root?.t == null ? "No round yet" : "Before round 1");

function plainWords(value) {
  const token = value.own && value.own.t != null ? `: ${inQuotes(value.own.t)}` : "";
  const numDropped = Object.keys(value.dropped ?? {}).length;
  if (numDropped) return `${plural(numDropped, "drafted token")} dropped (dotted), none verified; the LLM writes one token${token}`;
  return `Nothing was drafted in this round; the LLM writes one token${token}`;
}

function draftWords(value, nodes) {
  const drafts = entries(value.drafts).map(([, draft]) => Object.keys(draft).length).filter(Boolean);
  if (!drafts.length) return `Drafts of ${plural(nodes.length, "different token")}.`;
  const total = drafts.reduce((sum, count) => sum + count, 0);
  return `${plural(drafts.length, "drafter")} guessed ${plural(total, "token")}, each in a tree of its own.`;
}

function combineWords(value, nodes) {
  if (isFused(value)) return fusedWords(nodes);
  const shared = nodes.filter((node) => Object.keys(node.by ?? {}).length > 1).length;
  const numDropped = Object.keys(value.dropped ?? {}).length;
  const agreed = shared ? `, ${shared} proposed by more than one drafter` : "";
  return `One tree of ${plural(nodes.length, "node")}${agreed}${numDropped ? `; ${numDropped} ${value.words?.dropped_short ?? "dropped"} (dotted)` : ""}.`;
}

function fusedWords(nodes) {
  const trunk = nodes.filter((node) => node.trunk).length;
  const beside = nodes.length - trunk;
  return `One tree of ${plural(nodes.length, "node")}: a trunk of ${trunk}, drafted together (the band), and ${beside} beside it.`;
}

function ownWords(value) {
  if (!value.own || value.own.t == null || value.own.kind === "none") return "";
  const text = inQuotes(value.own.t);
  if (value.own.kind === "recovered") return `Then it ${value.own.drew ? "drew" : "wanted"} ${text} instead.`;
  return value.own.kind === "bonus" ? `The pass also gives ${text}, the ${TOKEN_KINDS.bonus.name}.` : `It writes ${text}.`;
}

export function nodeLabel(item) {
  const names = item.by.map((d) => `${d.letter} ${d.name}`).join(" and ");
  const fused = item.values?.origin !== undefined;
  const by = !item.by.length ? "" : fused ? `, ${item.trunk ? "on the trunk" : "a side leaf"}, token of ${names}` : `, proposed by ${names}`;
  const p = item.p == null ? "" : `, probability ${prob(item.p)}`;
  return `${plain(item.text)}: ${MEANING[item.kind] ?? item.kind}${by}${p}`;
}

export function tableOf(value, list, cell) {
  const fused = isFused(value);
  const part = (item) => (item.values?.origin === undefined ? "–" : item.trunk ? "trunk" : "side leaf");
  const rows = list.map((item) => [
    item.key === "-1" ? "root" : item.key, item.parent === "-1" ? "root" : item.parent ?? "–", cell(item.text),
    OWN_LABEL[item.kind] ? TOKEN_KINDS[item.kind].name : item.kind.replace("_", " "), item.by.map((d) => `${d.letter} ${d.name}`).join(", ") || "–", ...(fused ? [part(item)] : []), prob(item.p),
  ]);
  const whose = fused ? ["whose token", "part"] : ["proposed by"];
  const head = ["node", "after", "token", "outcome", ...whose, value.stage === "draft" ? "score" : "LLM probability"];
  const stage = hasBegun(value) ? `, stage ${value.stage ?? ""}` : "";
  return { caption: `${heading(value)}${stage}`, head, rows };
}
