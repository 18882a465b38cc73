// Links to rows: `#orphans?node_id=7` shows section "orphans" with its table filtered. The address keeps the filter.
const linkedBy = (link) => {
  if (link.dataset.q !== undefined) return link.dataset.q;
  const cell = link.closest("td, th");
  const view = views.get(link.closest("table")?.id.slice(2));
  const keys = cell && view ? view.heads[cell.cellIndex].dataset.by : undefined;
  if (keys === undefined) return "";
  const wanted = new URLSearchParams();
  for (const key of keys.split(" ")) {
    const value = view.value(cell.parentElement, key);
    if (value !== null && value !== NOTHING) wanted.set(key, value);
  }
  return wanted.toString();
};

const follow = () => {
  const at = location.hash.indexOf("?");
  if (at < 0) return;
  const name = location.hash.slice(1, at);
  const view = views.get(name);
  const section = document.getElementById(name);
  if (!section) return;
  if (view) view.only(new URLSearchParams(location.hash.slice(at + 1)));
  const heading = section.querySelector("h2") ?? section;
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  (view ? view.table.closest("section").querySelector(".tools") : section).scrollIntoView();
};

document.addEventListener("click", (event) => {
  const link = event.target.closest('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
  const wanted = linkedBy(link);
  if (wanted === "") return;
  event.preventDefault();
  const hash = `${link.getAttribute("href")}?${wanted}`;
  if (location.hash === hash) follow();
  else location.hash = hash;
});
addEventListener("hashchange", follow);
follow();
