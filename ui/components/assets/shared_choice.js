// A choice within one study that its pictures share without the server, such as the chosen point of a grid.

// sharedChoice(panel, event, onChange): `onChange` is called after each choice, whichever picture it was made in.
// of(value) is the latest choice if it was made for the value's study, else undefined; choose(choice) reaches all pictures.
export function sharedChoice(panel, event, onChange) {
  const state = { study: null, choice: undefined };
  const listen = ({ detail }) => {
    if (!panel.section.isConnected) return document.removeEventListener(event, listen);
    Object.assign(state, detail);
    if (panel.value) onChange();
  };
  document.addEventListener(event, listen);
  return {
    of: (value) => (state.study === value.study ? state.choice : undefined),
    choose: (choice) => document.dispatchEvent(new CustomEvent(event, { detail: { study: panel.value.study, choice } })),
  };
}

// The point that is marked in a grid's maps, lines and table: the grid's best until another is chosen.
export function sharedPoint(panel, onChange) {
  const { of, choose } = sharedChoice(panel, "specscope-point", onChange);
  return { of: (value) => of(value) ?? value.best, choose };
}
