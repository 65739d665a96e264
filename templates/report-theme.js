(() => {
  let theme = null;
  try { theme = localStorage.getItem("workbench-theme"); } catch { /* a file may have no storage */ }
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  document.documentElement.classList.add("scripted");
})();
