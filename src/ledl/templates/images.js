// Each image to look at gets a choice of labels. The button saves them as a table for `ledl fit --labels`.
const choices = [...document.querySelectorAll("select")];
for (const choice of choices) {
  for (const [cell, name] of labels) choice.add(new Option(name, cell, false, name === choice.dataset.label));
  choice.add(new Option("(cannot tell)", ""));
  choice.addEventListener("change", () => choice.classList.add("changed"));
  choice.hidden = false;
}
const save = document.getElementById("save");
save.hidden = false;
save.querySelector("button").addEventListener("click", () => {
  const quoted = (row) => row.map((cell) => `"${cell.replaceAll('"', '""')}"`).join(",");
  const rows = [["path", "label"], ...choices.map((choice) => [choice.dataset.path, choice.value])];
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(["\ufeff", rows.map(quoted).join("\r\n"), "\r\n"], { type: "text/csv" }));
  link.download = "corrected.csv";
  link.click();
});
