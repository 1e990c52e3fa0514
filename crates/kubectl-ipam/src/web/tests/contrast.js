() => {
  // The texts of the page whose contrast with their background is below 4.5 : 1.
  const parse = (color) => {
    const numbers = color.match(/[\d.]+/g).map(Number);
    const scale = color.startsWith("color(") ? 255 : 1;
    const [r, g, b, a = 1] = numbers;
    return [r * scale, g * scale, b * scale, a];
  };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
  const background = (element) => {
    if (!element) return [255, 255, 255, 1];
    const own = parse(getComputedStyle(element).backgroundColor);
    return own[3] === 1 ? own : over(own, background(element.parentElement));
  };
  const light = ([r, g, b]) => {
    const linear = [r, g, b].map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const low = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const isHidden = !element.checkVisibility({ checkOpacity: true }) || element.closest("button:disabled, .hidden, .skip");
    if (walker.currentNode.textContent.trim() === "" || isHidden) continue;
    const back = background(element);
    const front = over(parse(getComputedStyle(element).color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const contrast = (a + 0.05) / (b + 0.05);
    if (contrast < 4.5) low.add(`${walker.currentNode.textContent.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return [...low];
}
