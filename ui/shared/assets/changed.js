() => {
  // A control was changed. With "Run on change" on, or after choosing a preset (ui/live/rerun.py), this clicks the
  // hidden button #live-rerun once the form is settled (settled.js): all fields of a preset have arrived and were
  // checked.
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
