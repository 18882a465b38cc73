// One search over everything: which tables have matches, and the first rows of each.
const TOLD = {
  usage_clusters: ["cluster_id", "hosts", "used_share", "reclaim_now"],
  usage_hosts: ["host", "used_share", "free", "reclaim_now"],
  usage_log_dirs: ["host", "log_dir", "used_share", "reclaim_now"],
  usage_topics: ["topic", "cluster_id", "allocated", "reclaim_restart"],
  directories: ["name", "host", "window", "allocated"],
  log_dir_health: ["finding", "host", "detail"],
  missing_replicas: ["topic", "host", "partition", "copies_elsewhere"],
  undecided_replicas: ["topic", "host", "partition", "copies_elsewhere", "reason"],
  growth: ["what", "log_dir", "days_to_full", "full_on"],
  duplicates: ["topic", "partition", "host", "log_dirs", "allocated"],
  deletion_progress: ["topic", "cluster_id", "done_share", "remaining"],
  audit: ["name", "host", "action", "outcome", "finished_at", "actor"],
  quarantined_input: ["file", "reason", "detail"],
};
const FEW = 5;

const search = async (words, mine) => {
  view.setAttribute("aria-busy", "true");
  const heading = make("h3", "", `Everything with “${words}”`);
  heading.tabIndex = -1;
  const parts = [];
  let sum = 0;
  for (const name of Object.keys(TOLD)) {
    const table = await tables.get(name).load();
    if (mine !== turn) return;
    const rows = words.trim() ? table.find(new Map(), words) : [];
    if (!rows.length) continue;
    sum += rows.length;
    const part = make("section", "hits");
    const title = make("h4");
    const link = make("a", "", `${table.title}: ${count(rows.length)}`);
    link.href = address({ name, q: words, sort: "", wanted: new Map() });
    title.append(link);
    const list = make("ul");
    for (const row of rows.slice(0, FEW)) {
      const item = make("li");
      for (const key of TOLD[name]) {
        const column = table.shown.find((one) => one.k === key);
        if (!column) continue;
        const cell = cellOf(table, row, column);
        const span = make("span", cell.className);
        if (isFigure(column)) span.append(make("small", "", column.l), " ");
        span.append(...cell.childNodes);
        item.append(span);
      }
      list.append(item);
    }
    part.append(title, list);
    parts.push(part);
  }
  const summary = make("p", "cut", sum ? `${count(sum)} rows in ${parts.length} tables.` : "Nothing on this page has it.");
  summary.id = "found";
  view.replaceChildren(heading, summary, ...parts);
  view.removeAttribute("aria-busy");
  marked("");
  say(summary.textContent);
  heading.focus({ preventScroll: true });
  document.getElementById("browse").scrollIntoView();
};

const searchBox = make("input");
searchBox.type = "search";
searchBox.id = "everything";
searchBox.placeholder = "host, log dir, topic";
searchBox.autocomplete = "off";
searchBox.spellcheck = false;
const form = make("form", "everything");
form.setAttribute("role", "search");
form.append(labelled("Search everything ( / )", searchBox));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!searchBox.value.trim()) return;
  go({ name: "search", q: searchBox.value.trim(), sort: "", wanted: new Map() });
});
// On a narrow screen problems come first, then the search.
const narrow = matchMedia("(max-width:48rem)");
const place = () => {
  const panels = document.querySelector(".panels");
  if (narrow.matches && panels) panels.after(form);
  else document.querySelector("header").insertBefore(form, themeButton);
};
narrow.addEventListener("change", place);
place();
addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || typing) return;
  if (event.key === "/") {
    event.preventDefault();
    searchBox.focus();
    searchBox.scrollIntoView({ block: "nearest" });
  }
});
