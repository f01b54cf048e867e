() => {
  // The list of keys: `?` opens and closes it on every tab, a button in the settings opens it. Text nodes only.
  const KEYS = [
    ["r", "run"], ["s", "stop"], ["Ctrl Enter", "run, from the prompt too"], ["space", "play or pause"],
    ["← →", "previous, next round"], [", .", "previous, next stage"], ["l", "last round"], ["p n", "previous, next lesson"],
    ["g", "settings"], ["t", "large type"], ["?", "this list"],
  ];
  function created(tag, ...children) {
    const one = document.createElement(tag);
    one.append(...children);
    return one;
  }
  const rows = KEYS.map(([keys, meaning]) => created("div",
    created("dt", ...keys.split(" ").map((key) => created("kbd", key))), created("dd", meaning)));
  const close = created("button", "Close");
  const list = created("dialog", created("h2", "Keys"), created("dl", ...rows), created("p", "A key presses its button on the open tab; in a text box only Ctrl Enter does."), close);
  list.className = "sp-keys";
  list.setAttribute("aria-label", "Keys");
  close.className = "sp-button";
  close.addEventListener("click", () => list.close());
  list.addEventListener("click", ({ target }) => target === list && list.close());  // outside of the box
  document.body.append(list);
  // A modal dialog takes the focus, closes on Escape, and gives the focus back.
  window.specscopeKeys = () => (list.open ? list.close() : list.showModal());
}
