// Dark or light: as the system has it, until the switch is used in this browser.

import { html, useEffect, useState } from "../html.js";
import { IconButton } from "../components/button.js";

const KEY = "mail-theme";
const system = matchMedia("(prefers-color-scheme: dark)");

const current = () => localStorage.getItem(KEY) ?? (system.matches ? "dark" : "light");

/** Show the page in the chosen theme from the first paint on. */
export const applyTheme = () => (document.documentElement.dataset.theme = current());

/** The switch. */
export function ThemeButton() {
  const [theme, setTheme] = useState(current);
  useEffect(() => {
    const onSystem = () => setTheme(applyTheme());
    system.addEventListener("change", onSystem);
    return () => system.removeEventListener("change", onSystem);
  }, []);
  const other = theme === "dark" ? "light" : "dark";
  const onClick = () => {
    localStorage.setItem(KEY, other);
    setTheme(applyTheme());
  };
  return html`
    <${IconButton} icon=${other === "dark" ? "moon" : "sun"} label=${`Use the ${other} theme`} onClick=${onClick} />
  `;
}
