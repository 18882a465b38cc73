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

// Theme: as the system says, until the reader says otherwise. Storage may be forbidden for files; then it is not kept.
const THEMES = ["system", "light", "dark"];
const kept = (theme) => {
  try {
    if (theme === undefined) return localStorage.getItem("logagent-theme");
    localStorage.setItem("logagent-theme", theme);
  } catch { /* as good as not kept */ }
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
