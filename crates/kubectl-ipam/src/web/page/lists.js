// Search results and waiting claims.

import { age, announce, count, el, get, kindName, list, Loader, plural, poolLink, poolText, write } from "./dom.js";

const states = {
  Allocated: "Allocated", Allocating: "Being allocated", Promised: "Promised", Excluded: "Excluded",
  CoolingDown: "Cooling down", Held: "Held", Bound: "Bound", Waiting: "Waiting", Deleting: "Being deleted",
};

// The name of a state in words.
export function stateText(state) {
  return states[state] ?? state;
}

// A cell of a table. It has its column's name for narrow windows.
function cell(label, content, name = null) {
  const empty = content === null || content === undefined || content === "";
  return el("td", { "data-label": label, class: empty ? `${name ?? ""} none` : name }, empty ? "–" : content);
}

function head(...names) {
  return el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col", text: name }))));
}

// A row that is built again when its item changes.
function rowOf(cells) {
  return () => {
    const element = el("tr");
    element.update = (item) => element.replaceChildren(...cells(item));
    return element;
  };
}

function link(pool, text, address) {
  return el("a", { href: poolLink(pool, address), text });
}

// A table of what holds addresses.
export function holderTable() {
  const body = el("tbody");
  const element = el("table", { class: "holders" }, head("Address", "State", "Claim", "Machine", "Cluster", "Pool", "Since"), body);
  const row = rowOf((holder) => [
    el("th", { scope: "row" }, link(holder.pool, holder.address, holder.address)),
    cell("State", el("span", { class: "pill", "data-state": holder.state, text: stateText(holder.state) })),
    cell("Claim", holder.claim),
    cell("Machine", holder.machine),
    cell("Cluster", holder.cluster),
    cell("Pool", holder.network ? `${poolText(holder.pool)} (network ${holder.network})` : poolText(holder.pool)),
    cell("Since", age(holder.since)),
  ]);
  const key = (holder) => `${holder.address} ${holder.ipAddress ?? holder.reservation} ${poolText(holder.pool)}`;
  return { element, set: (holders) => list(body, holders, key, row) };
}

// A table of claims that wait.
export function waitingTable(withPool) {
  const body = el("tbody");
  const names = withPool ? ["Claim", "Pool", "Waits", "Reason", "Cluster", "Machine"] : ["Claim", "Waits", "Reason", "Cluster", "Machine"];
  const element = el("table", { class: "claims" }, head(...names), body);
  const row = rowOf((claim) => {
    const reason = el("div", { class: "reason" }, el("strong", { text: claim.reason ?? "No reason yet" }));
    if (claim.message) reason.append(el("span", { text: claim.message }));
    const cells = [
      el("th", { scope: "row", text: `${claim.namespace}/${claim.name}` }),
      withPool && cell("Pool", link(claim.pool, poolText(claim.pool))),
      cell("Waits", age(claim.created)),
      cell("Reason", reason, "wide"),
      cell("Cluster", claim.cluster),
      cell("Machine", claim.machine),
    ];
    return cells.filter(Boolean);
  });
  return { element, set: (claims) => list(body, claims, (claim) => `${claim.namespace}/${claim.name}`, row) };
}

export function waiting() {
  const table = waitingTable(true);
  const empty = el("p", { class: "empty", text: "No claim waits for an address." });
  const note = el("p", { class: "hint" });
  const element = el("section", {}, el("h1", { text: "Waiting claims" }), note, table.element, empty);
  let total = 0;
  const loader = new Loader(async () => {
    const found = await get("/api/waiting");
    const claims = found ?? [];
    table.set(claims);
    table.element.hidden = claims.length === 0;
    empty.hidden = claims.length > 0;
    write(empty, found === null ? "It is unknown which claims wait: you may not list claims." : "No claim waits for an address.");
    const more = total > claims.length ? `, of which the oldest ${count(claims.length)} are listed` : "";
    write(note, claims.length > 0 ? `${plural(Math.max(total, claims.length), "claim")} without an address${more}; the oldest is first.` : "");
  });
  table.element.hidden = true;
  empty.hidden = true;
  const update = (data) => {
    total = data.waiting ?? 0;
    loader.run();
  };
  return { element, update, title: "Waiting claims" };
}

export function search(route) {
  let text = route.parameters.get("q") ?? "";
  const title = el("h1");
  const summary = el("p", { class: "hint" });
  const pools = group("Pools", el("table", { class: "matches" }));
  const holders = group("Addresses", null, holderTable());
  const claims = group("Claims", null, claimTable());
  const element = el("section", {}, title, summary, pools.element, holders.element, claims.element);
  const poolBody = el("tbody");
  pools.table.append(head("Pool", "Kind", "Contains it as"), poolBody);
  const poolRow = rowOf(({ pool, membership, network, address }) => [
    el("th", { scope: "row" }, link(pool, poolText(pool), address)),
    cell("Kind", `${kindName(pool.kind)}${network ? `, network ${network}` : ""}`),
    cell("Contains it as", membership),
  ]);
  const loader = new Loader(async () => {
    const asked = text;
    const found = await get("/api/search", { q: asked });
    if (asked !== text) return;
    const isAddress = found.matches.length > 0;
    const memberships = { Allocatable: "Address of the pool", Excluded: "Excluded address", Gateway: "Gateway", Reserved: "Reserved address of the subnet" };
    const lines = found.matches.map((match) => ({ ...match, membership: memberships[match.membership], address: asked }));
    lines.push(...found.pools.map((pool) => ({ pool })));
    pools.table.classList.toggle("no-membership", !isAddress);
    list(poolBody, lines, (line) => `${line.pool.kind}/${poolText(line.pool)}`, poolRow);
    pools.element.hidden = lines.length === 0;
    holders.show(found.holders);
    claims.show(found.claims);
    const total = lines.length + found.holders.length + found.claims.length;
    const parts = [
      lines.length > 0 && plural(lines.length, "pool"),
      found.holders.length > 0 && plural(found.holders.length, "address", "addresses"),
      found.claims.length > 0 && plural(found.claims.length, "claim"),
    ].filter(Boolean);
    const holds = found.isComplete ? ". Nothing holds the address" : ". It is unknown who holds the address";
    const free = isAddress && found.holders.length === 0 ? holds : "";
    const none = found.isComplete ? "Nothing found." : "Nothing found in what you may list.";
    const result = total > 0 ? `${parts.join(", ")}${free}${found.isLimited ? ". There are more: write more of the name" : ""}.` : none;
    if (summary.textContent !== result) announce(result);
    write(summary, result);
  });
  function accept(next) {
    text = next.parameters.get("q") ?? "";
    write(title, `Search: ${text}`);
    const box = document.getElementById("query");
    if (document.activeElement !== box) box.value = text;
    document.title = `${text} · kubectl ipam`;
    loader.run();
    return true;
  }
  accept(route);
  return { element, update: () => loader.run(), accepts: accept, title: text };
}

function group(name, table, tableOf = null) {
  const content = tableOf?.element ?? table;
  const element = el("section", { hidden: true }, el("h2", { text: name }), content);
  const show = (items) => {
    element.hidden = items.length === 0;
    tableOf.set(items);
  };
  return { element, table, show };
}

function claimTable() {
  const body = el("tbody");
  const element = el("table", { class: "claims" }, head("Claim", "State", "Address", "Pool", "Cluster", "Machine", "Age"), body);
  const row = rowOf((claim) => [
    el("th", { scope: "row", text: `${claim.namespace}/${claim.name}` }),
    cell("State", el("span", { class: "pill", "data-state": claim.state, text: claim.reason ?? stateText(claim.state) })),
    cell("Address", claim.address ? link(claim.pool, claim.address, claim.address) : null),
    cell("Pool", link(claim.pool, poolText(claim.pool))),
    cell("Cluster", claim.cluster),
    cell("Machine", claim.machine),
    cell("Age", age(claim.created)),
  ]);
  return { element, set: (claims) => list(body, claims, (claim) => `${claim.namespace}/${claim.name}`, row) };
}
