// Light or dark: as the system says, until somebody chooses; the choice stays in this browser.
import { useEffect, useSyncExternalStore } from "react";

export type Theme = "light" | "dark";
const KEY = "holdfast-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const listeners = new Set<() => void>();
let chosen = readChosen();

function readChosen(): Theme | null {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === "light" || kept === "dark" ? kept : null;
  } catch {
    return null;
  }
}

const current = (): Theme => chosen ?? (system.matches ? "dark" : "light");

export function choose(theme: Theme) {
  chosen = theme;
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // A browser that keeps nothing forgets the choice with the page.
  }
  listeners.forEach((listener) => listener());
}

export function useTheme(): Theme {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    system.addEventListener("change", listener);
    return () => {
      listeners.delete(listener);
      system.removeEventListener("change", listener);
    };
  }, current);
}

/** Tells the style sheets. */
export function useThemeOnPage() {
  const theme = useTheme();
  useEffect(() => {
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  return theme;
}
