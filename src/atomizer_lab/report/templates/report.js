// Tables sort by the column whose head is pressed; tabs show one panel at a time.
document.documentElement.classList.add("js");

for (const tabs of document.querySelectorAll(".tabs")) {
  const buttons = [...tabs.querySelectorAll(":scope > [role=tablist] > [role=tab]")];
  const choose = chosen => {
    for (const button of buttons) {
      button.setAttribute("aria-selected", button === chosen);
      button.tabIndex = button === chosen ? 0 : -1;
      document.getElementById(button.getAttribute("aria-controls")).hidden = button !== chosen;
    }
  };
  buttons.forEach((button, number) => {
    button.addEventListener("click", () => choose(button));
    button.addEventListener("keydown", event => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = buttons[(number + step + buttons.length) % buttons.length];
      choose(next);
      next.focus();
    });
  });
  choose(buttons.find(button => button.getAttribute("aria-selected") === "true"));
}

const order = (left, right) => {
  const numbers = [Number(left), Number(right)];
  return numbers.some(Number.isNaN) ? left.localeCompare(right) : numbers[0] - numbers[1];
};

for (const button of document.querySelectorAll("th button")) {
  const head = button.parentElement, table = button.closest("table"), body = table.tBodies[0];
  button.addEventListener("click", () => {
    // numbers begin with the largest, words with the first letter; pressed again, the other way round
    const column = Number(button.dataset.column);
    const value = row => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const words = [...body.rows].every(row => value(row) === "" || Number.isNaN(Number(value(row))));
    const before = head.getAttribute("aria-sort");
    const rising = before ? before === "descending" : words;
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", rising ? "ascending" : "descending");
    const filled = [...body.rows].filter(row => value(row) !== "");
    const empty = [...body.rows].filter(row => value(row) === "");
    filled.sort((a, b) => (rising ? 1 : -1) * order(value(a), value(b)));
    body.append(...filled, ...empty);
  });
}
