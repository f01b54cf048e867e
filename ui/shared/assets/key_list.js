() => {
  // The list of keys: `?` opens and closes it.
  const KEYS = [
    ["r", "run"], ["s", "stop"], ["Ctrl Enter", "run, from the prompt too"], ["space", "play or pause"],
    ["← →", "previous, next round"], [", .", "previous, next stage"], ["l", "last round"], ["p n", "previous, next lesson"],
    ["g", "settings"], ["t", "large type"], ["?", "this list"],
  ];
  function create(tag, ...children) {
    const one = document.createElement(tag);
    one.append(...children);
    return one;
  }
  const rows = KEYS.map(([keys, meaning]) => create("div",
    create("dt", ...keys.split(" ").map((key) => create("kbd", key))), create("dd", meaning)));
  const close = create("button", "Close");
  const list = create("dialog", create("h2", "Keys"), create("dl", ...rows), create("p", "A key presses its button on the open tab; in a text box only Ctrl Enter does."), close);
  list.className = "sp-keys";
  list.setAttribute("aria-label", "Keys");
  close.className = "sp-button";
  close.addEventListener("click", () => list.close());
  list.addEventListener("click", ({ target }) => target === list && list.close());  // outside of the box
  document.body.append(list);
  window.specscopeKeys = () => (list.open ? list.close() : list.showModal());
}
