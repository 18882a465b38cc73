// Names from disks are on this page: text goes in by textContent only, never as markup.
const make = (tag, className, text) => {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};
const count = (number) => number.toLocaleString("en-US");
const status = document.getElementById("status");
const say = (text) => { status.textContent = text; };

// Theme: the system's, until the reader chooses another. Storage may be forbidden for files; then the choice is not
// kept.
const THEMES = ["system", "light", "dark"];
const kept = (theme) => {
  try {
    if (theme === undefined) return localStorage.getItem("logagent-theme");
    localStorage.setItem("logagent-theme", theme);
  } catch { /* it is not kept */ }
  return null;
};
const themeButton = make("button", "button");
themeButton.type = "button";
const setTheme = (theme) => {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  themeButton.textContent = `Theme: ${theme}`;
};
let theme = THEMES.includes(kept()) ? kept() : "system";
setTheme(theme);
themeButton.addEventListener("click", () => {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  setTheme(theme);
  kept(theme);
});
document.querySelector("header").append(themeButton);
// A page that was left open or comes from a mail says how old it is: reports are made daily.
const OLD_HOURS = 26;
const reported = document.querySelector("header time");
const hoursOld = (Date.now() - Date.parse(reported.dateTime)) / 3600000;
if (hoursOld > OLD_HOURS) reported.after(" ", make("b", "warn", hoursOld < 48 ? "more than a day old" : `${count(Math.floor(hoursOld / 24))} days old`));
// The markup has the panels in the order of a narrow screen. On a wide one the tab key goes the way that is seen, too.
const wide = matchMedia("(min-width: 60.01rem)");
const arrange = () => {
  const box = document.querySelector(".panels");
  const focused = document.activeElement;
  box?.prepend(...[wide.matches ? "disks" : "risk", "reclaim", wide.matches ? "risk" : "disks"].map((id) => document.getElementById(id)));
  focused?.focus({ preventScroll: true });
};
arrange();
wide.addEventListener("change", arrange);
