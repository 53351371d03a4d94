// The API reference: the viewer, without what would ask other sites or needs eval.

globalThis.__zod_globalConfig = { jitless: true }; // read when the viewer's script runs, after this one

const safe = ["GET", "HEAD", "OPTIONS"];

// send sends a request of the viewer. It carries the session's cookie, which alone does not
// prove that this page wrote the request.
function send(address, options) {
  const request = new Request(address, options);
  if (!safe.includes(request.method)) request.headers.set("X-CSRF", "1");
  // The viewer sends Bearer without a token where none was entered; it would count instead
  // of the session.
  if (request.headers.get("Authorization")?.trim() === "Bearer") request.headers.delete("Authorization");
  return fetch(request);
}

// show shows the explanation of an error's code, once it is there.
function show(code) {
  const line = [...document.querySelectorAll("#reference li > code:first-child")].find((e) => e.textContent === code)?.parentElement;
  if (!line) return false;
  line.tabIndex = -1;
  line.focus();
  line.scrollIntoView({ block: "center" });
  return true;
}

// codeInAddress is what /docs# ends with in the type of an error, undefined at an address of
// the viewer's own.
const codeInAddress = () => location.hash.match(/^#([a-z_]+)$/)?.[1];

// After all scripts.
addEventListener("DOMContentLoaded", () => {
  const code = codeInAddress();
  if (code) {
    history.replaceState(null, "", location.pathname); // the viewer would take it for its own
    const drawn = new MutationObserver(() => { if (show(code)) drawn.disconnect(); });
    drawn.observe(document.getElementById("reference"), { childList: true, subtree: true });
  }
  addEventListener("hashchange", () => show(codeInAddress()));
  Scalar.createApiReference("#reference", {
    url: "/openapi.json",
    customFetch: send,
    agent: { disabled: true },
    mcp: { disabled: true },
    telemetry: false,
    withDefaultFonts: false,
    hideClientButton: true,
    showDeveloperTools: "never",
    documentDownloadType: "direct",
  });
});
