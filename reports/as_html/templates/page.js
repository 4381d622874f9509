"use strict";
// The page is complete without this script: it only adds copy buttons and opens what a link or a printer needs.
(() => {
  const copy = async (button) => {
    const code = button.closest(".code").querySelector("code").textContent;
    try {
      await navigator.clipboard.writeText(code);
    } catch {
      // A page opened from a file may not use the clipboard API: select the lines, and copy the selection.
      const area = document.createElement("textarea");
      area.value = code;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
      button.focus();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  };
  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = false;
    button.addEventListener("click", () => copy(button));
  }
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open], .page, .table, .long)")];
    for (const one of opened) one.open = true;
  });
  addEventListener("afterprint", () => {
    for (const one of opened) one.open = false;
  });
})();
