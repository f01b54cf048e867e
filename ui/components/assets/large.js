// Large type for a lecture hall: switched by window.specscopeLargeType(on), kept in this browser.

const KEPT = "specscope-large";
const html = document.documentElement;

// `on` left out switches to the other; what it is now. `keep` false is for this visit only.
function largeType(on = !html.classList.contains("ss-large"), { keep = true } = {}) {
  html.classList.toggle("ss-large", on);
  for (const button of document.querySelectorAll(".sp-large")) button.setAttribute("aria-pressed", String(on));
  try {
    if (keep) localStorage.setItem(KEPT, on ? "1" : "0");
  } catch { /* a browser that keeps nothing */ }
  return on;
}

function storedChoice() {
  try {
    return localStorage.getItem(KEPT) === "1";
  } catch {
    return false;
  }
}

// A presenter's link asks for it with `?large=1`.
const inAddress = () => new URLSearchParams(location.search).get("large") === "1";

window.specscopeLargeType = largeType;
largeType(inAddress() || storedChoice() || html.classList.contains("ss-large"), { keep: false });
