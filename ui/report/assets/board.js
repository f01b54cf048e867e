// Mounts the report's pictures and notice, each with a stand-in for the component object that Gradio passes.

import { mount } from "./main.js";
import { mount as mountNotice } from "./notice.js";

// Returns show(values, notice). `select` gets the data of a picture's event: a selection (some of round, node, token and
// stage), or a command for the player ({do}).
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
  return (values, noticeValue) => {
    for (const [name, host] of hosts) host.show(values[name]);
    notice.show(noticeValue);
  };
}

function hostOf(element, select) {
  const updates = [];
  const props = { value: {}, label: element.dataset.label };
  return {
    element, props, event: "select",
    trigger: (_event, data) => select(data),
    watch: (_name, update) => updates.push(update),
    show(value) {
      if (props.value === value) return;
      props.value = value;
      for (const update of updates) update();
    },
  };
}
