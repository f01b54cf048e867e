() => {
  // With "Run on change" on, or after choosing a preset, clicks the hidden button #live-rerun. The click waits until
  // all fields of the preset have arrived and were checked (settled.js).
  const STILL_MS = 400, AGAIN_MS = 50;
  const on = () => window.specscopePreset || document.querySelector("#live-onchange input")?.checked;
  const press = () => {
    if (!on()) return;
    if (window.specscopeSettled?.busy()) window.specscopeChanged = setTimeout(press, AGAIN_MS);
    else {
      window.specscopePreset = false;
      document.querySelector("#live-rerun")?.click();
    }
  };
  clearTimeout(window.specscopeChanged);
  if (on()) window.specscopeChanged = setTimeout(press, STILL_MS);
}
