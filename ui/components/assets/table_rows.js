// A table as high as its rows, up to a sensible number; one with more scrolls, and the last row in sight is cut in the
// middle, so that it can be seen that there are more.

const MOST = 24;

export function growing(box, table) {
  function measure() {
    const row = table.querySelectorAll("tbody tr")[MOST];
    const high = row && `${row.offsetTop + row.offsetHeight / 2}px`;
    if (high) box.style.setProperty("--ss-rows-high", high);
    else box.style.removeProperty("--ss-rows-high");
  }
  new ResizeObserver(measure).observe(table);  // more rows, or another width
  return box;
}
