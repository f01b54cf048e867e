// Decompresses the report's data and starts the replay, without any request.
(async () => {
  const theme = new URLSearchParams(location.search).get("__theme");
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.classList.toggle("dark", dark);
  const unseal = async (name) => {
    const { gzip } = JSON.parse(document.getElementById(`specscope-${name}`).textContent);
    const bytes = Uint8Array.from(atob(gzip), (char) => char.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  };
  try {
    if (!window.DecompressionStream || !HTMLScriptElement.supports?.("importmap")) {
      throw new Error("this browser is too old for it. Chrome or Edge 103, Firefox 113, Safari 16.4 and later can");
    }
    window.specscope = { opened: unseal };
    const imports = {};
    for (const [name, text] of Object.entries(JSON.parse(await unseal("scripts")))) {
      imports[`specscope/${name}`] = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
    }
    const map = document.createElement("script");
    map.type = "importmap";
    map.textContent = JSON.stringify({ imports });
    document.head.append(map);
    const { start } = await import("specscope/report.js");
    await start(JSON.parse(await unseal("run")));
  } catch (error) {
    console.error(error);
    document.getElementById("report-trouble").hidden = false;
    document.getElementById("report-why").textContent = `The replay does not start: ${error.message}.`;
  }
})();
