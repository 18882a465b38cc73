// Controls of a table. They are made here, so that without JavaScript there is no control that does nothing.
const MOST_CHOICES = 40;
// A table that is taken in at a glance needs no filter.
const FEW = 6;

const sortButton = (view, head, at) => {
  const button = make("button", "", head.textContent);
  button.type = "button";
  head.replaceChildren(button);
  const first = "n" in head.dataset ? "descending" : "ascending";
  const second = first === "descending" ? "ascending" : "descending";
  button.addEventListener("click", () => {
    const now = head.getAttribute("aria-sort");
    view.sort(at, now === null ? first : now === first ? second : null);
  });
};

const labelled = (text, control) => {
  const label = make("label", "", text);
  label.append(control);
  return label;
};

const chooser = (view, key) => {
  const at = view.column(key);
  const values = [...new Set(view.rows.map((row) => row.cells[at].textContent))];
  if (values.length < 2 || values.length > MOST_CHOICES) return null;
  const select = make("select");
  select.dataset.key = key;
  const all = make("option", "", "all");
  all.value = "*";
  select.append(all);
  for (const value of values.sort(collator.compare)) {
    const option = make("option", "", value);
    option.value = `=${value}`;
    select.append(option);
  }
  select.addEventListener("change", () => {
    if (select.value === "*") view.exact.delete(key);
    else view.exact.set(key, select.value.slice(1));
    view.filter();
  });
  return labelled(view.labels[at], select);
};

const chip = (view, key, value) => {
  const item = make("li");
  const label = view.labels[view.column(key)];
  const button = make("button", "button", `${label}: ${value} ×`);
  button.type = "button";
  button.setAttribute("aria-label", `Remove the filter ${label}: ${value}`);
  button.addEventListener("click", () => {
    view.exact.delete(key);
    view.filter();
    (view.input.isConnected ? view.input : view.table.closest(".scroll")).focus();
  });
  item.append(button);
  return item;
};

const addTools = (view) => {
  const tools = make("div", "tools");
  const input = make("input");
  input.type = "search";
  input.spellcheck = false;
  input.autocomplete = "off";
  input.addEventListener("input", () => {
    view.words = input.value.trim().toLowerCase();
    view.filter();
  });
  view.input = input;
  if (view.rows.length > FEW) {
    const picks = view.heads.filter((head) => "pick" in head.dataset).map((head) => chooser(view, head.dataset.k));
    tools.append(labelled("Filter rows", input), ...picks.filter(Boolean));
  }
  const chips = make("ul", "chips");
  chips.setAttribute("aria-label", "Filters from links");
  const found = make("p", "found");
  tools.append(chips, found);
  const none = make("p", "empty");
  none.hidden = true;
  const box = view.table.closest(".scroll");
  box.before(tools);
  box.after(none);
  view.changed = (number) => {
    if (input.value.trim().toLowerCase() !== view.words) input.value = view.words;
    for (const select of tools.querySelectorAll("select")) {
      const wanted = view.exact.get(select.dataset.key);
      select.value = wanted === undefined ? "*" : `=${wanted}`;
      if (select.selectedIndex < 0) select.value = "*";
    }
    const offered = new Set([...tools.querySelectorAll("select")].filter((s) => s.value !== "*").map((s) => s.dataset.key));
    const linked = [...view.exact].filter(([key]) => !offered.has(key));
    chips.replaceChildren(...linked.map(([key, value]) => chip(view, key, value)));
    chips.hidden = linked.length === 0;
    tools.hidden = chips.hidden && view.rows.length <= FEW;
    const filtered = view.words !== "" || view.exact.size > 0;
    found.textContent = filtered ? `${count(number)} of ${count(view.rows.length)} rows` : "";
    none.hidden = number > 0;
    box.hidden = number === 0;
    none.textContent = view.rows.length < view.total
      ? `None of the ${count(view.rows.length)} rows shown matches. The table has ${count(view.total)} rows: the others are not on this page.`
      : "No row matches.";
    say(filtered ? `${count(number)} rows match.` : `All ${count(number)} rows.`);
  };
  chips.hidden = true;
  tools.hidden = view.rows.length <= FEW;
};

for (const view of views.values()) {
  view.heads.forEach((head, at) => sortButton(view, head, at));
  addTools(view);
}
