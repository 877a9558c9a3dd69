// Everything is readable without this script; it unfolds lines and switches the theme.
for (const button of document.querySelectorAll(".fold button")) {
  button.addEventListener("click", () => {
    const fold = button.closest("tbody");
    fold.nextElementSibling.hidden = false;
    fold.remove();
  });
}
const root = document.documentElement;
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme
    ? root.dataset.theme === "dark"
    : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
