// Large type for a lecture hall: switched by window.specscopeLargeType(on), kept in this browser.

const KEPT = "specscope-large";
const html = document.documentElement;

// Without `on`, large type is toggled. Returns whether large type is on now. With `keep` false the browser stores nothing.
function largeType(on = !html.classList.contains("ss-large"), { keep = true } = {}) {
  html.classList.toggle("ss-large", on);
  for (const button of document.querySelectorAll(".sp-large")) button.setAttribute("aria-pressed", String(on));
  try {
    if (keep) localStorage.setItem(KEPT, on ? "1" : "0");
  } catch { /* the browser stores nothing */ }
  return on;
}

function storedChoice() {
  try {
    return localStorage.getItem(KEPT) === "1";
  } catch {
    return false;
  }
}

const inAddress = () => new URLSearchParams(location.search).get("large") === "1";

window.specscopeLargeType = largeType;
largeType(inAddress() || storedChoice() || html.classList.contains("ss-large"), { keep: false });
