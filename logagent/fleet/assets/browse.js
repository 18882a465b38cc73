// The current view is in the address: `#usage_hosts?cluster_id=…&q=…&sort=-bytes`. Back, forward and a shared link show
// the same view again.
const view = document.getElementById("view");
const first = Object.keys(told.tables)[0];
const LEVELS = { usage_clusters: "All clusters", usage_hosts: "cluster_id", usage_log_dirs: "node_id", places: "log_dir" };
const MOST_CHOICES = 40;
let turn = 0;
let unfolded = false;
let grid = null;

const read = () => {
  const [name, query] = location.hash.slice(1).split(/\?(.*)/s);
  const words = new URLSearchParams(query ?? "");
  const state = { name, q: words.get("q") ?? "", sort: words.get("sort") ?? "", wanted: new Map() };
  state.picked = words.get("picked")?.split(",") ?? [];
  for (const [key, value] of words) if (!["q", "sort", "picked"].includes(key)) state.wanted.set(key, value);
  return state;
};
const address = ({ name, q, sort, wanted }) => {
  const words = new URLSearchParams([...wanted]);
  if (q) words.set("q", q);
  if (sort) words.set("sort", sort);
  const ids = name === "directories" ? picked.ids() : [];
  if (ids.length) words.set("picked", ids.join(","));
  const query = words.toString();
  return `#${name}${query ? `?${query}` : ""}`;
};
const go = (state) => { location.hash = address(state); };
const amend = (state) => {
  history.replaceState(null, "", address(state));
  show(state, true);
};

const show = async (state, still) => {
  const mine = ++turn;
  if (state.name === "search") return search(state.q, mine);
  const table = tables.get(state.name);
  if (!table) return;
  view.setAttribute("aria-busy", "true");
  await table.load();
  if (mine !== turn) return;
  if (table.name === "directories") picked.restore(table, state.picked);
  const rows = table.sorted(table.find(state.wanted, state.q), state.sort.replace(/^-/, ""), state.sort.startsWith("-"));
  const held = still && view.contains(document.activeElement) ? document.activeElement.dataset.hold : undefined;
  const heading = make("h3", "", table.title);
  heading.tabIndex = -1;
  const lead = aboutOf(table);
  grid = rows.length ? gridOf(table, rows, state) : null;
  const found = countOf(table, rows, state);
  const body = grid ? grid.box : make("p", "empty", emptyOf(table, state));
  const command = picked.bar(table, rows, state);
  if (held === "filter") {
    // Keep the field while the reader types: a new one would lose letters.
    view.querySelector("#found").replaceWith(found);
    view.querySelector(".scroll, .empty").replaceWith(body);
    view.querySelector(".picked").replaceWith(command);
  } else view.replaceChildren(crumbs(state, table), heading, lead, toolsOf(table, state), found, command, body);
  grid?.draw();
  view.removeAttribute("aria-busy");
  marked(state.name);
  if (held && held !== "filter") view.querySelector(`[data-hold="${held}"]`)?.focus();
  else if (!still && !held) {
    heading.focus({ preventScroll: true });
    document.getElementById("browse").scrollIntoView();
  }
};

const marked = (name) => {
  for (const link of document.querySelectorAll("#browse > nav a")) {
    if (link.hash === `#${name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
};

// What the table shows. On a telephone what it shows comes first.
const aboutOf = (table) => {
  const about = make("details", "about");
  about.append(make("summary", "", "What is this"), make("p", "lead", table.lead));
  about.open = !isNarrow();
  return about;
};

const gridOf = (table, rows, state) => new Grid(table, rows, {
  sort: state.sort,
  onSort: (sort, column) => {
    amend({ ...state, sort });
    say(sort ? `Sorted by ${column.l}, ${sort.startsWith("-") ? "descending" : "ascending"}.` : "In the order of the report.");
  },
  pick: table.name === "directories" ? (row) => picked.box(table, row) : null,
});

// All clusters › a cluster › its host › its log dir › a topic in it.
const crumbs = (state, table) => {
  const nav = make("nav", "crumbs");
  nav.setAttribute("aria-label", "Where you are");
  const list = make("ol");
  const add = (text, href) => {
    const item = make("li");
    const inside = href ? make("a") : make("span");
    if (href) inside.href = href;
    putName(inside, text);
    item.append(inside);
    list.append(item);
  };
  add("All clusters", "#usage_clusters");
  const kept = new URLSearchParams();
  const steps = [["cluster_id", "usage_hosts"], ["node_id", "usage_log_dirs"], ["log_dir", "places"], ["topic", "directories"]];
  for (const [key, to] of steps) {
    const value = state.wanted.get(key);
    if (value === undefined) continue;
    kept.set(key, value);
    const row = key === "node_id" ? table.find(new Map([...state.wanted].filter(([k]) => k === "cluster_id" || k === "node_id")), "")[0] : undefined;
    const host = row === undefined ? null : table.value(row, "host");
    add(key === "cluster_id" ? named(value) : host ?? (key === "node_id" ? `node ${value}` : value), `#${to}?${kept}`);
  }
  nav.append(list);
  nav.hidden = list.children.length < 2;
  return nav;
};

const labelled = (text, control) => {
  const label = make("label", "", text);
  label.append(control);
  return label;
};

const isNarrow = () => matchMedia("(max-width: 48rem)").matches;

const toolsOf = (table, state) => {
  const tools = make("div", "tools");
  const input = make("input");
  input.type = "search";
  input.spellcheck = false;
  input.autocomplete = "off";
  input.value = state.q;
  input.dataset.hold = "filter";
  input.addEventListener("input", () => {
    amend({ ...read(), name: table.name, q: input.value });
  });
  tools.append(labelled("Filter rows", input));
  const fold = make("details", "fold");
  fold.append(make("summary", "", "More filters"));
  for (const column of table.shown.filter((one) => one.pick)) {
    const select = chooser(table, column, state);
    if (select) fold.append(labelled(column.l, select));
  }
  // On a telephone they would push the first row off the screen.
  fold.open = !isNarrow() || unfolded;
  fold.addEventListener("toggle", () => { unfolded = isNarrow() && fold.open; });
  if (fold.querySelector("select")) tools.append(fold);
  const chips = make("ul", "chips");
  chips.setAttribute("aria-label", "Filters from links");
  const offered = new Set([...tools.querySelectorAll("select")].map((one) => one.dataset.hold));
  for (const [key, value] of state.wanted) if (!offered.has(key)) chips.append(chip(table, state, key, value));
  chips.hidden = !chips.children.length;
  tools.append(chips);
  return tools;
};
const later = (work) => setTimeout(work, 0);

const chooser = (table, column, state) => {
  const data = table.data[table.at.get(column.k)];
  if (Array.isArray(data) || data.d.length < 2 || data.d.length > MOST_CHOICES) return null;
  const select = make("select");
  select.dataset.hold = column.k;
  select.append(new Option("all", ""));
  for (const value of [...data.d].sort(collator.compare)) {
    select.append(new Option(column.k === "cluster_id" ? named(value) : WORDS[value] ?? value, `=${value}`));
  }
  if (state.wanted.get(column.k) === "") select.append(new Option("none", "="));
  select.value = state.wanted.has(column.k) ? `=${state.wanted.get(column.k)}` : "";
  select.addEventListener("change", () => {
    const wanted = new Map(state.wanted);
    if (select.value) wanted.set(column.k, select.value.slice(1));
    else wanted.delete(column.k);
    amend({ ...read(), name: table.name, wanted });
  });
  return select;
};

const chip = (table, state, key, value) => {
  const item = make("li");
  const [, name, bound] = /^(.*?)(?:\.(min|max|known))?$/.exec(key);
  const column = table.columns[table.at.get(name)];
  const label = `${column ? column.l : name}${bound === "min" ? " from" : bound === "max" ? " up to" : ""}`;
  const figure = bound === "known" ? "any" : value === "" ? "none" : column && isFigure(column) ? shown(Number(value), column.u) : column?.u === "date" ? shown(value, "date") : key === "cluster_id" ? named(value) : value;
  const button = make("button", "button", `${label}: ${figure} ×`);
  button.type = "button";
  button.setAttribute("aria-label", `Remove the filter ${label}: ${figure}`);
  button.addEventListener("click", () => {
    const wanted = new Map(state.wanted);
    wanted.delete(key);
    amend({ ...read(), wanted });
    later(() => view.querySelector("[data-hold=filter]")?.focus());
  });
  item.append(button);
  return item;
};

const orderOf = (table, sort) => {
  const column = table.columns[table.at.get(sort.replace(/^-/, ""))];
  return column ? `by ${column.l}` : table.order;
};

// How much of the table is here, in one sentence; nothing is left out silently.
const countOf = (table, rows, state) => {
  const filtered = state.q !== "" || state.wanted.size > 0;
  const of = ["allocated", "bytes"].find((key) => table.at.has(key));
  const bytes = of ? rows.reduce((sum, row) => sum + (table.value(row, of) ?? 0), 0) : null;
  const cut = table.rows < table.total;
  const all = `${count(table.rows)} ${table.rows === 1 ? "row" : "rows"}`;
  const text = [
    filtered ? `${count(rows.length)} of ${all}` : `${all}, ${orderOf(table, state.sort)}`,
    bytes === null ? "" : `, ${size(bytes)}`, ". ",
    filtered && state.sort ? `Sorted ${orderOf(table, state.sort)}. ` : "",
    cut ? `The ${table.name === "audit" ? "newest" : "largest"} ${count(table.rows)} of ${count(table.total)} rows are on this page; all of them: ` : "All columns: ",
  ].join("");
  const line = make("p", cut ? "cut part" : "cut", text);
  line.id = "found";
  table.files.forEach((file, at) => {
    const link = make("a", "", file);
    link.href = file;
    line.append(at ? ", " : "", link);
  });
  if (filtered) say(`${count(rows.length)} rows match.`);
  return line;
};

const emptyOf = (table, state) => {
  if (!state.q && !state.wanted.size) return table.empty;
  if (table.rows === 0) return table.empty;
  if (table.rows < table.total) return `Not among the ${count(table.rows)} rows on this page. The table has ${count(table.total)}: look in the file.`;
  return "No row matches.";
};

addEventListener("hashchange", () => show(read()));
const PRINTED = 60;
addEventListener("beforeprint", () => {
  grid?.draw(Math.min(grid.rows.length, PRINTED));
  const found = view.querySelector("#found");
  if (grid && grid.rows.length > PRINTED) found.append(make("span", "onpaper", `. The first ${PRINTED} are printed.`));
});
addEventListener("afterprint", () => {
  for (const each of view.querySelectorAll(".onpaper")) each.remove();
  grid?.draw();
});
