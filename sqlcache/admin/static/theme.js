// The chosen theme, before anything is painted; without one the browser's own decides.
"use strict";
try {
  const chosen = localStorage.getItem("sqlcache.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser may forbid to keep anything: then it is the browser's own.
}
