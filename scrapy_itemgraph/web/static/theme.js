// Before the page is drawn: the theme that this browser chose.
"use strict";
try {
  const chosen = localStorage.getItem("itemgraph-theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
} catch { /* storage is off: the system decides */ }
