// Shows lines with the colors of a terminal.
(lines) => {
  const colors = { 31: "#ff7b72", 32: "#4f5b66", 33: "#e3b341", 34: "#79c0ff" };
  const pre = document.createElement("pre");
  pre.style.cssText = "margin:0;padding:24px 28px;font:15px/1.45 'DejaVu Sans Mono',monospace;color:#d5dde5";
  document.body.style.cssText = "margin:0;background:#10151b";
  for (const line of lines) {
    for (const [index, part] of line.split(/\u001b\[(\d+)m/).entries()) {
      if (index % 2 === 1) pre.color = colors[part];
      else {
        const span = document.createElement("span");
        if (pre.color) span.style.color = pre.color;
        span.textContent = part;
        pre.append(span);
      }
    }
    pre.append("\n");
  }
  document.body.replaceChildren(pre);
}
