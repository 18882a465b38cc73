// Commands are copied with one click or key, and shown as copied. If copying is forbidden they are selected instead.
const bar = make("div", "commandbar");
bar.hidden = true;
bar.setAttribute("role", "region");
bar.setAttribute("aria-label", "Command");
const said = make("p");
const box = make("textarea");
box.readOnly = true;
box.setAttribute("aria-label", "The command");
const close = make("button", "button", "Close");
close.type = "button";
close.addEventListener("click", () => { bar.hidden = true; });
bar.append(said, box, close);
addEventListener("keydown", (event) => { if (event.key === "Escape") bar.hidden = true; });
document.body.append(bar);

const copy = async (command, where) => {
  bar.hidden = false;
  box.value = command;
  box.rows = Math.min(command.split("\n").length, 6);
  let done = true;
  try { await navigator.clipboard.writeText(command); } catch { done = false; }
  if (!done) {
    box.focus();
    box.select();
    try { done = document.execCommand("copy"); } catch { /* selected is all we can do */ }
  }
  said.textContent = `${done ? "Copied" : "Selected: press Ctrl+C"}${where ? `; run it ${where}` : ""}. It previews; add --execute.`;
  say(said.textContent);
};

const copyButton = (command, where, text, label) => {
  const button = make("button", "button copy", text);
  button.type = "button";
  button.title = command;
  if (label) button.setAttribute("aria-label", label);
  button.addEventListener("click", () => copy(command, where));
  return button;
};

for (const code of document.querySelectorAll("code.cmd")) {
  const line = code.closest("li");
  const about = line ? [...line.childNodes].filter((node) => node !== code && !node.contains?.(code)).map((node) => node.textContent).join(" ").trim() : "";
  code.replaceWith(copyButton(code.textContent, code.dataset.where ?? "", "Copy", `Copy the command: ${about}`));
}
// Keys 1 to 6 copy the command of that step.
addEventListener("keydown", (event) => {
  if (!/^[1-9]$/.test(event.key) || event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, select, textarea")) return;
  document.querySelectorAll(".steps > li")[Number(event.key) - 1]?.querySelector("button.copy")?.click();
});

// The picked rows and the command for them; if none are picked, the command for the rows in view, if one can express
// them.
const LEGAL = /^[A-Za-z0-9._-]+$/;
const MOST_IDS = 200;
const WINDOWS = new Set(["now", "restart"]);
const quoted = (word) => (/^[A-Za-z0-9_@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\"'\"'")}'`);
// What needs approval is said before the command is run: a plan with only copies is refused without.
const placeOf = (table, rows) => {
  const needs = rows.some((row) => table.value(row, "window") === "approval" || table.value(row, "standing") === "only copy");
  return `${told.where}${needs ? "; only copies are among them, so it asks for --approve with the plan's id and the word only-copy" : ""}`;
};
const picked = {
  rows: new Set(),
  refresh: () => {},

  // The address has the picks too, as far as a command can have them: a shared link shows the same ones.
  ids() {
    if (this.rows.size > MOST_IDS) return [];
    return [...this.rows].map((row) => tables.get("directories").value(row, "id"));
  },

  changed() {
    this.refresh();
    history.replaceState(null, "", address(read()));
  },

  restore(table, ids) {
    if (this.restored) return;
    this.restored = true;
    const wanted = new Set(ids);
    for (const row of wanted.size ? table.all() : []) if (wanted.has(table.value(row, "id"))) this.rows.add(row);
  },

  box(table, row) {
    const cell = make("td", "pick");
    const id = table.value(row, "id");
    if (!id) return cell;
    const input = make("input");
    input.type = "checkbox";
    input.checked = this.rows.has(row);
    input.setAttribute("aria-label", `Pick ${table.value(row, "name")} on ${table.value(row, "host")}`);
    input.addEventListener("change", () => {
      if (input.checked) this.rows.add(row);
      else this.rows.delete(row);
      this.changed();
    });
    cell.append(input);
    return cell;
  },

  bar(table, rows, state) {
    const line = make("p", "picked");
    if (table.name === "usage_log_dirs" || table.name === "usage_hosts" || table.name === "places") {
      const nodes = new Set(rows.slice(0, 1000).map((row) => table.value(row, "node_id")));
      if (nodes.size === 1 && rows.length) {
        const host = table.value(rows[0], "host");
        line.append(copyButton("logagent cleanup", `on ${host}`, `Copy the command for ${host}`));
      }
      return line;
    }
    if (table.name !== "directories") return line;
    this.refresh = () => {
      line.replaceChildren();
      const chosen = [...this.rows];
      const clusters = new Set(chosen.map((row) => table.value(row, "cluster_id")));
      if (clusters.size > 1) {
        line.append("Rows of more than one cluster are picked: a command is for one cluster. ");
      } else if (chosen.length) {
        const bytes = chosen.reduce((sum, row) => sum + table.value(row, "allocated"), 0);
        const command = this.ofRows(table, chosen);
        line.append(`${count(chosen.length)} picked, ${size(bytes)}. `,
          command ? copyButton(command, placeOf(table, chosen), "Copy the command for them") : "No command can be made for them, or they are too many for one. ");
      } else {
        // Directories that a broker marked itself and undecided ones have no id: no command is for them.
        const able = rows.filter((row) => table.value(row, "id"));
        const some = able.length < rows.length ? `${count(able.length)} of these rows` : "these rows";
        const command = able.length ? this.ofWindow(table, state) ?? this.ofView(table, rows, state) ?? this.ofRows(table, able) : null;
        if (command) line.append(copyButton(command, placeOf(table, able), `Copy the command for ${some}`));
        else if (able.length) line.append(`For a command pick rows, or filter down to ${MOST_IDS} of one cluster.`);
      }
      if (chosen.length) {
        const none = make("button", "button", "Pick none");
        none.type = "button";
        none.addEventListener("click", () => {
          this.rows.clear();
          for (const input of view.querySelectorAll("td.pick input")) input.checked = false;
          this.changed();
        });
        line.append(" ", none);
      }
    };
    this.refresh();
    return line;
  },

  purge(cluster, words) {
    if (told.purge === null) return null;
    const where = cluster === null ? [] : ["--cluster", cluster];
    return [...told.purge, ...where, ...words].map(quoted).join(" ");
  },

  // A window alone, in every cluster: the command of the first screen.
  ofWindow(table, state) {
    const window = state.wanted.get("window");
    if (table.rows < table.total || state.q || state.wanted.size !== 1 || !WINDOWS.has(window)) return null;
    return this.purge(null, ["--window", window]);
  },

  // Exactly these rows, if all of them fit into one line that any terminal accepts.
  ofRows(table, rows) {
    const cluster = table.value(rows[0], "cluster_id");
    if (rows.length > MOST_IDS || !LEGAL.test(cluster)) return null;
    const ids = rows.map((row) => table.value(row, "cluster_id") === cluster ? table.value(row, "id") : null);
    return ids.every((id) => id && LEGAL.test(id)) ? this.purge(cluster, ["--id", ids.join(",")]) : null;
  },

  // Only filters that the command has too: it must select exactly what is shown.
  ofView(table, rows, state) {
    // The report may have more rows than this page.
    if (table.rows < table.total) return null;
    const options = { node_id: "--host", reason: "--reason", topic: "--topic", list: "--kind" };
    if (rows.length > MOST_IDS) options.window = "--window";
    const cluster = state.wanted.get("cluster_id") ?? (new Set(rows.map((row) => table.value(row, "cluster_id"))).size === 1 ? table.value(rows[0], "cluster_id") : undefined);
    if (!cluster || !LEGAL.test(cluster) || state.q || state.wanted.size === 0) return null;
    const words = [];
    for (const [key, value] of state.wanted) {
      if (key === "cluster_id") continue;
      if (!options[key] || !LEGAL.test(value)) return null;
      if (key === "list" && value !== "orphan") return null;
      if (key === "reason" && !Object.hasOwn(told.reasons, value)) return null;
      if (key === "window" && !WINDOWS.has(value)) return null;
      words.push(options[key], key === "topic" ? value.replaceAll(".", "\\.") : value);
    }
    return words.length ? this.purge(cluster, words) : null;
  },
};

// The first table is shown on request; an address that names a table shows it at once.
if (location.hash.length > 1 && !document.getElementById(location.hash.slice(1).split("?")[0])) show(read());
else show({ name: first, q: "", sort: "", wanted: new Map() }, true);
