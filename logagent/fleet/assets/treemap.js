// The map is one stop of the Tab key; arrows move to the nearest topic in that direction.
const AHEAD = {
  ArrowLeft: (from, to) => [from.x - to.x, Math.abs(from.y - to.y)],
  ArrowRight: (from, to) => [to.x - from.x, Math.abs(from.y - to.y)],
  ArrowUp: (from, to) => [from.y - to.y, Math.abs(from.x - to.x)],
  ArrowDown: (from, to) => [to.y - from.y, Math.abs(from.x - to.x)],
};
const middle = (link) => {
  const box = link.getBoundingClientRect();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
};
const nearest = (links, from, ahead) => {
  let best = null;
  let least = Infinity;
  for (const link of links) {
    if (link === from) continue;
    const [forward, aside] = ahead(middle(from), middle(link));
    const cost = forward + 2 * aside;
    if (forward > 1 && cost < least) [best, least] = [link, cost];
  }
  return best;
};

for (const map of document.querySelectorAll(".map")) {
  const links = [...map.querySelectorAll("a")];
  const said = map.parentElement.querySelector(".said");
  said.hidden = false;
  said.textContent = "Point at a topic, or use the arrow keys; Enter shows its row in the table.";
  const reach = (link) => links.forEach((each) => each.setAttribute("tabindex", each === link ? "0" : "-1"));
  reach(links[0]);
  const tell = (event) => {
    const link = event.target.closest("a");
    if (link) said.textContent = link.querySelector("title").textContent;
  };
  map.addEventListener("focusin", (event) => { reach(event.target.closest("a")); tell(event); });
  map.addEventListener("pointerover", tell);
  map.addEventListener("keydown", (event) => {
    const from = event.target.closest("a");
    const next = event.key === "Home" ? links[0] : event.key === "End" ? links[links.length - 1]
      : AHEAD[event.key] ? nearest(links, from, AHEAD[event.key]) : null;
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
}
