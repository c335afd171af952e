"use strict";
// Chromium in a POSIX locale, as in containers, names a language that Intl refuses: uPlot would not load.
try {
  Intl.getCanonicalLocales(navigator.language);
} catch {
  Object.defineProperty(navigator, "language", { value: "en" });
}
