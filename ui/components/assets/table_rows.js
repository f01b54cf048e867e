// A table as high as its rows, up to MOST rows. A longer table scrolls, and cuts its last visible row in the middle.

const MOST = 24;

export function fitToRows(box, table) {
  function measure() {
    const row = table.querySelectorAll("tbody tr")[MOST];
    const high = row && `${row.offsetTop + row.offsetHeight / 2}px`;
    if (high) box.style.setProperty("--ss-rows-high", high);
    else box.style.removeProperty("--ss-rows-high");
  }
  new ResizeObserver(measure).observe(table);  // more rows, or another width
  return box;
}
