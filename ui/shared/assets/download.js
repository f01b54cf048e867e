// Saves each new value as a file, once for each number `n`.
let last = (props.value || {}).n;
function save() {
  const value = props.value || {};
  if (!value.name || value.n === last) return;
  last = value.n;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([value.text], { type: value.media_type + ";charset=utf-8" }));
  link.download = value.name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
watch("value", save);
