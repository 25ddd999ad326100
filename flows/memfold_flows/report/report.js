"use strict";
// Everything that came from a store is data: it becomes text nodes and nothing else.
const data = JSON.parse(document.getElementById("data").textContent);
for (const entry of data.entries) {
  for (const part of ["memory", "stays", "other"]) if (part in entry) entry[part] = data.memories[entry[part]];
}
const PER_PAGE = 50, MOST_PRINTED = 1000, MOST_WORDS = 600, MOST_SCOPES = 200;
const ACTIONS = {
  decided: "Decided by a person", merge: "Fold into another", prune: "Leave", promote: "Move up", held: "Held", waits: "Wait",
  conflict: "Conflicts", near: "Near misses",
};
const WHY = {
  copy: "an exact copy but for case, spacing or punctuation", same: "says the same in other words",
  contains: "the one that stays says this and more", rewritten: "part of a new text", expired: "its time is over",
  blank: "holds no text", stale: "old and unused, by your settings", superseded: "a newer memory replaces it",
  capacity: "its scope is over its limit", promoted: "qualifies for the next tier",
  held: "held by a check", waits: "does not fit under the limit of this pass", "by hand": "decided by a person",
  pinned: "it stays whatever the rules say", rejected: "what the plan had for it was rejected",
  removed: "the rules would have kept it",
};
const HIDDEN = /([\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}])/u;
const $ = (id) => document.getElementById(id);
const state = { action: "", scope: null, kind: null, text: "", page: 0 };

function make(tag, className, ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children);
  return element;
}

/** Text with the signs that nobody sees spelled out, so that no text can reorder or hide what is shown. */
function visible(text) {
  return text.split(HIDDEN).filter((part) => part !== undefined && part !== "").map((part) => {
    if (!HIDDEN.test(part)) return document.createTextNode(part);
    return make("span", "sign", `U+${part.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`);
  });
}

const number = (value) => value.toLocaleString("en");
const percent = (share) => `${(share * 100).toFixed(1)} %`;
const count = (value, one, many) => `${number(value)} ${value === 1 ? one : many}`;
const scopeName = (scope) => scope === "" ? "(no scope)" : scope;
const time = (iso) => `${iso.slice(0, 16).replace("T", " ")} UTC`;

function showVerdict() {
  const plan = data.plan;
  const [words, tone] = {
    "accepted": ["The plan passes the gate", "good"], "refused": ["The plan is refused", "bad"],
    "partly accepted": ["The plan passes in part", "mixed"], "nothing to do": ["There is nothing to do", ""],
  }[plan.verdict];
  $("verdict").textContent = words;
  $("verdict").className = tone;
  $("run").append("· run ", ...visible(plan.run_id), " · ", ...visible(plan.store), ` · as of ${time(plan.as_of)}`);
  document.title = `${words} · memfold ${plan.run_id}`;
  const refused = plan.scopes.filter((scope) => !scope.accepted).length;
  const accepted = sums(plan.scopes.filter((scope) => scope.accepted)), stopped = sums(plan.scopes.filter((scope) => !scope.accepted));
  const did = `Of ${count(plan.entries_before, "memory", "memories")}, ${number(accepted.merged)} would fold into another, ` +
    `${number(accepted.pruned)} would leave and ${number(accepted.promoted)} would move up.`;
  const gate = refused === 0 ? "" : ` ${count(refused, "scope is", "scopes are")} refused, and nothing of ` +
    `${refused === 1 ? "it" : "them"} is written: of ${refused === 1 ? "its" : "their"} ` +
    `${count(stopped.entries_before, "memory", "memories")}, ${number(stopped.lost)} would be lost.`;
  $("lead").textContent = plan.verdict === "nothing to do"
    ? `All ${number(plan.entries_before)} memories stay as they are.` : did + gate;
  const decisions = Object.values(plan.edits), gone = decisions.filter((each) => each === "prune").length;
  if (decisions.length > 0) {
    history(`A person changed this plan: ${count(decisions.length - gone, "memory is", "memories are")} to stay, ` +
      `${count(gone, "is", "are")} to go. The gate looked at it again after that.`);
  }
  if (data.applied) {
    const done = data.applied;
    const states = { Consolidated: "written", PartlyApplied: "written in part", Rejected: "refused, nothing was written",
      NothingToDo: "nothing to do, nothing was written" };
    history(`Applied ${time(done.ended_at)}: ${states[done.state]}; ${number(done.merged)} folded, ` +
      `${number(done.pruned)} removed, ${number(done.promoted)} moved up.`);
  }
  for (const drift of data.drifted.slice(0, 50)) history(`Left alone: ${drift.memory_id}: ${drift.why}`);
  if (data.drifted.length > 50) history(`and ${number(data.drifted.length - 50)} more were left alone.`);
  if (data.undone) history(`${data.undone.state === "Undone" ? "Undone" : "Undone in part"} ${time(data.undone.ended_at)}.`);
  for (const [why, rows] of Object.entries(plan.left_alone)) {
    history(`${count(rows, "row was", "rows were")} not read and stay as they are: ${why}`);
  }
}

/** What scopes come to together. */
function sums(scopes) {
  const names = ["entries_before", "entries_after", "merged", "pruned", "promoted", "held", "waits", "lost", "lost_strict"];
  return Object.fromEntries(names.map((name) => [name, scopes.reduce((sum, scope) => sum + scope[name], 0)]));
}

function history(line) {
  $("history").append(make("p", "history", ...visible(line)));
}

function showFigures() {
  const plan = data.plan;
  const stopped = plan.scopes.filter((scope) => !scope.accepted), all = plan.entries_before;
  const written = sums(plan.scopes.filter((scope) => scope.accepted)), share = (lost) => percent(all === 0 ? 0 : lost / all);
  const limit = `limit per scope ${percent(plan.max_loss_fraction)}`;
  const figures = [
    ["memories before", number(all), ""],
    ["memories after", number(written.entries_after + sums(stopped).entries_before), stopped.length ? "refused scopes stay as they are" : ""],
    ["lost", share(written.lost), `${number(written.lost)}${plan.strict_entries ? "" : `; ${limit}`}`],
    ["counted strictly", share(written.lost_strict), `${number(written.lost_strict)}${plan.strict_entries ? `; ${limit}` : ", with copies and expired"}`],
    ["held by a check", number(written.held), ""], ["wait for the next pass", number(written.waits), ""],
  ];
  for (const [name, value, note] of figures) {
    const dd = make("dd", "", value);
    if (note) dd.append(make("small", "", note));
    $("figures").append(make("div", "", make("dt", "", name), dd));
  }
}

function showScopes() {
  const changes = (scope) => scope.merged + scope.pruned + scope.promoted;
  const scopes = [...data.plan.scopes].sort((a, b) => a.accepted - b.accepted || changes(b) - changes(a) || b.held - a.held);
  for (const scope of scopes.filter((each) => !each.accepted).slice(0, MOST_SCOPES)) {
    const reasons = make("ul", "", ...scope.refused.map((reason) => make("li", "", ...visible(reason))));
    const name = make("p", "", "Refused: ", make("b", "", ...visible(scopeName(scope.scope))), ". Nothing of this scope is written.");
    $("refusals").append(make("div", "refusal", name, reasons));
  }
  for (const scope of scopes.slice(0, MOST_SCOPES)) {
    const cells = [scope.entries_before, scope.entries_after, scope.merged, scope.pruned, scope.promoted, scope.held, scope.waits].map(number);
    cells.push(percent(scope.loss_fraction), percent(scope.loss_fraction_strict));
    const gate = make("td", scope.accepted ? "ok" : "refused", scope.accepted ? "✓ ok" : "✗ refused");
    $("scopes").append(make("tr", "", make("td", "", ...visible(scopeName(scope.scope))), gate, ...cells.map((cell) => make("td", "", cell))));
  }
  const more = scopes.length - MOST_SCOPES;
  if (more > 0) $("more-scopes").textContent = `and ${count(more, "scope", "scopes")} more: memfold show RUN --json has all of them`;
}

/** Words, what stands between them, and the points at their end; scripts without spaces go sign by sign. */
const tokens = (text) => text.match(/[\u2e80-\u9fff\uf900-\ufaff]|\s+|[.,;:!?]+(?=\s|$)|[^\s\u2e80-\u9fff\uf900-\ufaff]+?(?=[.,;:!?]*(?:\s|$)|[\u2e80-\u9fff\uf900-\ufaff])/gu) ?? [];

/** The words of two texts in one line: ["=", word], ["-", only in the first] or ["+", only in the second]. */
function difference(first, second) {
  const a = tokens(first), b = tokens(second);
  let start = 0, end = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const left = a.slice(start, a.length - end), right = b.slice(start, b.length - end);
  const same = (words) => words.map((word) => ["=", word]);
  return [...same(a.slice(0, start)), ...middle(left, right), ...same(a.slice(a.length - end))];
}

function middle(a, b) {
  const all = [...a.map((word) => ["-", word]), ...b.map((word) => ["+", word])];
  if (a.length === 0 || b.length === 0 || a.length > MOST_WORDS || b.length > MOST_WORDS) return all;
  const width = b.length + 1, longest = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      longest[i * width + j] = a[i] === b[j] ? longest[(i + 1) * width + j + 1] + 1
        : Math.max(longest[(i + 1) * width + j], longest[i * width + j + 1]);
    }
  }
  const parts = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { parts.push(["=", a[i]]); i++; j++; }
    else if (j === b.length || (i < a.length && longest[(i + 1) * width + j] >= longest[i * width + j + 1])) parts.push(["-", a[i++]]);
    else parts.push(["+", b[j++]]);
  }
  return parts;
}

/** Neighbours of one kind as one mark, all words that leave before all that come, as a reader expects. */
function marked(parts, tags = { "-": "del", "+": "ins" }) {
  const nodes = [];
  let gone = "", come = "";
  const flush = () => {
    if (gone) nodes.push(...mark(tags["-"], gone));
    if (come) nodes.push(...mark(tags["+"], come));
    gone = come = "";
  };
  for (const [kind, word] of parts) {
    if (kind === "-") gone += word;
    else if (kind === "+") come += word;
    else { flush(); nodes.push(...visible(word)); }
  }
  flush();
  return nodes;
}

/** The words in their mark, the space around them outside of it. */
function mark(tag, words) {
  const [, before, inside, after] = words.match(/^(\s*)(.*?)(\s*)$/su);
  return inside ? [before, make(tag, "", ...visible(inside)), after] : [make(tag, "", words)];
}

function textBlock(memory, parts, tags) {
  const block = make("div", "text");
  block.dir = "auto";
  if (memory.title && memory.title !== memory.text) block.append(make("div", "title", ...visible(memory.title)));
  if (memory.text === null) block.append(make("span", "missing", "(this run no longer keeps the text)"));
  else if (memory.text === "") block.append(make("span", "missing", "(empty)"));
  else block.append(...(parts ? marked(parts, tags) : visible(memory.text)));
  return block;
}

function row(label, tone, memory, parts, why, tags) {
  const about = make("div", "about", ...visible(memory.memory_id));
  if (memory.kind) about.append(" · ", ...visible(memory.kind));
  if (why) about.append(" · ", ...visible(why));
  return make("div", "row", make("div", `mark ${tone}`, label), textBlock(memory, parts, tags), about);
}

const because = (entry) => entry.reason === "copy" ? WHY.copy
  : [WHY[entry.reason] ?? entry.reason, entry.detail].filter(Boolean).join(": ");

function card(entries) {
  const first = entries[0], article = make("article", "");
  article.tabIndex = -1;
  article.append(make("h3", "", make("b", "", heading(first)), make("span", "", ...visible(scopeName(scopeOf(first))))));
  if (first.action === "merge") article.append(...mergeRows(entries));
  else if (first.other) article.append(...pairRows(first));
  else {
    const leaves = first.action === "prune" || first.reason === "removed";
    article.append(row(leaves ? "leaves" : first.action === "promote" ? "moves up" : "stays", leaves ? "goes" : "stays", first.memory, null, because(first)));
  }
  return article;
}

const DECIDED = { pinned: "Pinned by a person", rejected: "Kept by a person", removed: "Removed by a person" };
const heading = (entry) => ({
  merge: "Folds into one", prune: "Leaves", promote: "Moves up", conflict: "Conflict: both stay, look at them",
  decided: DECIDED[entry.reason], held: entry.other ? "Twins, held apart" : "Held", waits: "Waits for a later pass", near: "Near miss: both stay",
})[entry.action];

function mergeRows(entries) {
  const stays = entries[0].stays;
  const rows = [row("stays", "stays", stays)];
  for (const entry of entries) {
    const parts = entry.memory.text !== null && stays.text !== null ? difference(entry.memory.text, stays.text) : null;
    rows.push(row("leaves", "goes", entry.memory, parts, because(entry)));
  }
  const text = entries[0].new_text;
  if (text !== null) {
    const parts = difference(stays.text ?? "", text);
    rows.push(row("new text", "stays", { ...stays, text }, parts, "proposed by a model, checked by memfold"));
  }
  return rows;
}

function pairRows(entry) {
  const { memory, other } = entry, both = memory.text !== null && other.text !== null;
  const only = (parts, without) => parts && parts.filter(([kind]) => kind !== without);
  const parts = both ? difference(memory.text, other.text) : null;
  const label = (side) => entry.newer === side ? "stays, newer" : "stays";
  const tags = { "-": "mark", "+": "mark" }; // neither leaves
  return [row(label("left"), "", memory, only(parts, "+"), "", tags),
    row(label("right"), "", other, only(parts, "-"), `${entry.reason}: ${entry.detail}`, tags)];
}

const scopeOf = (entry) => entry.memory.scope || entry.stays?.scope || "";
const memoriesOf = (entry) => [entry.memory, entry.stays, entry.other].filter(Boolean);

/** What a search looks through, made once per entry, when it is first searched. */
function haystack(entry) {
  entry.haystack ??= [entry.reason, entry.detail, entry.new_text,
    ...memoriesOf(entry).flatMap((memory) => [memory.memory_id, memory.title, memory.text])].filter(Boolean).join("\n").toLowerCase();
  return entry.haystack;
}

function chosen(ignoringAction) {
  const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
  return data.entries.filter((entry) => (ignoringAction || !state.action || entry.action === state.action)
    && (state.scope === null || scopeOf(entry) === state.scope)
    && (state.kind === null || memoriesOf(entry).some((memory) => (memory.kind ?? "") === state.kind))
    && words.every((word) => haystack(entry).includes(word)));
}

/** Merges into one memory share a card. */
function cards(entries) {
  const groups = [];
  for (const entry of entries) {
    const last = groups.at(-1)?.[0];
    if (entry.action === "merge" && last?.action === "merge" && last.stays.memory_id === entry.stays.memory_id) groups.at(-1).push(entry);
    else groups.push([entry]);
  }
  return groups.map(card);
}

function show(most = PER_PAGE) {
  const found = chosen(false), pages = Math.max(1, Math.ceil(found.length / most));
  state.page = Math.min(state.page, pages - 1);
  const from = state.page * most, shown = found.slice(from, from + most);
  $("list").replaceChildren(...cards(shown));
  $("count").textContent = found.length === data.entries.length
    ? `${count(found.length, "entry", "entries")}` : `${number(found.length)} of ${count(data.entries.length, "entry", "entries")}`;
  if (found.length === 0) {
    $("list").append(make("p", "note", data.entries.length === 0 ? "Every memory stays as it is, and none looked like another." : "Nothing matches these filters."));
  }
  $("where").textContent = found.length === 0 ? "" : `${number(from + 1)} to ${number(from + shown.length)} of ${number(found.length)}`;
  $("previous").disabled = state.page === 0;
  $("next").disabled = state.page >= pages - 1;
  showCounts();
}

function showCounts() {
  const counts = {};
  for (const entry of chosen(true)) counts[entry.action] = (counts[entry.action] ?? 0) + 1;
  for (const chip of $("actions").children) {
    const action = chip.dataset.action;
    const sum = action ? counts[action] ?? 0 : Object.values(counts).reduce((a, b) => a + b, 0);
    chip.textContent = `${ACTIONS[action] ?? "All"} ${number(sum)}`;
    chip.setAttribute("aria-pressed", String(state.action === action));
  }
}

function change(part) {
  Object.assign(state, { page: 0 }, part);
  show();
}

function turn(by) {
  const before = state.page;
  state.page = Math.max(0, state.page + by);
  show();
  if (state.page !== before) {
    $("list").focus({ preventScroll: true });
    $("filters").scrollIntoView();
  }
}

function choices(select, values, all, name) {
  select.append(new Option(all, "-1"), ...values.map((value, index) => new Option("", String(index))));
  values.forEach((value, index) => select.options[index + 1].append(visible(name(value)).map((node) => node.textContent).join("")));
  return () => select.value === "-1" ? null : values[Number(select.value)];
}

function setUpFilters() {
  const present = new Set(data.entries.map((entry) => entry.action));
  for (const action of ["", ...Object.keys(ACTIONS).filter((each) => present.has(each))]) {
    const chip = make("button", "");
    chip.type = "button";
    chip.dataset.action = action;
    chip.addEventListener("click", () => change({ action }));
    $("actions").append(chip);
  }
  const scopes = [...new Set(data.entries.map(scopeOf))].sort();
  const kinds = [...new Set(data.entries.flatMap(memoriesOf).map((memory) => memory.kind ?? ""))].sort();
  const scopeChosen = choices($("scope"), scopes, "all scopes", scopeName);
  const kindChosen = choices($("kind"), kinds, "all kinds", (kind) => kind || "(no kind)");
  $("scope").addEventListener("change", () => change({ scope: scopeChosen() }));
  $("kind").addEventListener("change", () => change({ kind: kindChosen() }));
  $("text").addEventListener("input", () => change({ text: $("text").value }));
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("previous").addEventListener("click", () => turn(-1));
  $("next").addEventListener("click", () => turn(1));
}

function step(by) {
  const all = [...$("list").querySelectorAll("article")], at = all.indexOf(document.activeElement);
  const to = all[Math.min(all.length - 1, Math.max(0, at + by))];
  to?.focus({ preventScroll: true });
  to?.scrollIntoView({ block: "center" });
}

const KEYS = { j: () => step(1), k: () => step(-1), n: () => turn(1), p: () => turn(-1), "/": () => $("text").focus() };

document.addEventListener("keydown", (event) => {
  const typing = event.target.matches("input, select");
  if (event.key === "Escape" && event.target === $("text")) {
    $("text").value = "";
    change({ text: "" });
    $("text").blur();
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey && KEYS[event.key]) {
    event.preventDefault();
    KEYS[event.key]();
  }
});
let pageBeforePrint = 0;
addEventListener("beforeprint", () => { pageBeforePrint = state.page; state.page = 0; show(MOST_PRINTED); });
addEventListener("afterprint", () => { state.page = pageBeforePrint; show(); });

showVerdict();
showFigures();
showScopes();
setUpFilters();
show();
$("foot").append(...visible(`Made by memfold ${data.plan.memfold} from run ${data.plan.run_id}. ` +
  "This file holds the texts of memories, and memfold forget does not reach it: keep it as you keep the store."));
if (data.left_out > 0) $("foot").append(` ${number(data.left_out)} more entries are not on this page; memfold export has all of them.`);
