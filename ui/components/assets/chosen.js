// Which point of a grid is chosen, told from picture to picture of one page: the maps, the lines and
// the table mark the same one at once, without the server.

const EVENT = "specscope-point";

// keepChosen(panel, mark): `mark` is called whenever another point is chosen. of(value) gives the
// chosen one of a value, its best until somebody chose; choose(point) tells all. The table asks the
// server.
export function keepChosen(panel, mark) {
  const state = { study: null, point: null };
  const heard = ({ detail }) => {
    if (!panel.section.isConnected) return document.removeEventListener(EVENT, heard);
    state.study = detail.study;
    state.point = detail.point;
    if (panel.value) mark();
  };
  document.addEventListener(EVENT, heard);
  return {
    of: (value) => (state.study === value.study && state.point !== null ? state.point : value.best),
    choose(point) {
      const study = panel.value.study;
      document.dispatchEvent(new CustomEvent(EVENT, { detail: { study, point } }));
    },
  };
}
