// The pictures and the notice in their places, with what Gradio gives them on the page: an element,
// a value, somebody who watches it and somebody to tell what was clicked.

import { mount } from "./main.js";
import { mount as mountNotice } from "./notice.js";

// show(values, notice) draws; select({round, node}) is told what was clicked, select({do}) what to play.
export async function createBoard(select) {
  const hosts = new Map();
  for (const element of document.querySelectorAll(".rp-picture")) {
    const name = element.querySelector(".ss-shell").dataset.picture;
    const host = hostOf(element, select);
    hosts.set(name, host);
    await mount(name, host);
  }
  const notice = hostOf(document.querySelector("#report-notice"), () => {});
  mountNotice(notice.element, notice.props, notice.watch, notice.trigger);
  return (values, said) => {
    for (const [name, host] of hosts) host.show(values[name]);
    notice.show(said);
  };
}

function hostOf(element, select) {
  const watching = [];
  const props = { value: {}, label: element.dataset.label };
  return {
    element, props, event: "select",
    trigger: (_event, data) => select(data),
    watch: (_name, told) => watching.push(told),
    show(value) {
      if (props.value === value) return;
      props.value = value;
      for (const told of watching) told();
    },
  };
}
