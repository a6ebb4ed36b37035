// Dark or light: as the system has it, until the switch is used in this browser.

import { $ } from "./dom.js";

const KEY = "mail-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function show() {
  const theme = localStorage.getItem(KEY) ?? (system.matches ? "dark" : "light");
  document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-pressed", String(theme === "dark"));
}

export function startTheme() {
  show();
  system.addEventListener("change", show);
  $("theme").addEventListener("click", () => {
    localStorage.setItem(KEY, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    show();
  });
}
