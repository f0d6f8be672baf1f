// What the tests of the page look at; the value of this is the answer.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const colour = text => {
    const parts = text.match(/[\d.]+/g);
    return parts && { rgb: parts.slice(0, 3).map(Number), alpha: parts.length > 3 ? Number(parts[3]) : 1 };
  };
  const over = (top, share, below) => top.map((v, i) => v * share + below[i] * (1 - share));
  const surface = element => {
    for (let e = element; e; e = e.parentElement) {
      const background = colour(getComputedStyle(e).backgroundColor);
      if (background && background.alpha === 1) return background.rgb;
    }
    return [255, 255, 255];
  };
  const luminance = rgb => {
    const [r, g, b] = rgb.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [high, low] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (high + 0.05) / (low + 0.05);
  };
  const faint = [];
  const check = (element, painted, wanted) => {
    const below = surface(element);
    const top = colour(painted);
    if (!top) return;
    const share = top.alpha * Number(getComputedStyle(element).opacity);
    const seen = contrast(over(top.rgb, share, below), below);
    if (seen < wanted) faint.push(`${element.tagName}.${element.getAttribute('class')}: ${seen.toFixed(2)}`);
  };
  for (const details of all('details')) details.open = true;
  for (const element of all('h1,h2,h3,p,li,a,summary,figcaption,th,td,caption,dt,dd,.tile *')) {
    check(element, getComputedStyle(element).color, 4.5);
  }
  for (const text of all('svg text')) check(text, getComputedStyle(text).fill, 4.5);
  for (const mark of all('svg .mark')) {
    const style = getComputedStyle(mark);
    check(mark, mark.classList.contains('hollow') ? style.stroke : style.fill, 3);
  }
  for (const line of all('svg .interval:not(.band), svg .curve')) check(line, getComputedStyle(line).stroke, 3);

  const outside = [];
  for (const svg of all('svg.chart')) {
    const { width, height } = svg.viewBox.baseVal;
    for (const element of all('text, .mark, line, polyline, rect:not(.page)', svg)) {
      const box = element.getBBox();
      if (box.x < -1 || box.y < -1 || box.x + box.width > width + 1 || box.y + box.height > height + 1) {
        outside.push(`${svg.parentElement.id} ${element.textContent || element.outerHTML}`);
      }
    }
  }
  const overlapping = [];
  for (const svg of all('svg.chart')) {
    const boxes = all('text', svg).map(text => [text.textContent, text.getBBox()]).filter(([t]) => t);
    boxes.forEach(([a, p], i) => boxes.slice(i + 1).forEach(([b, q]) => {
      const wide = Math.min(p.x + p.width, q.x + q.width) - Math.max(p.x, q.x);
      const high = Math.min(p.y + p.height, q.y + q.height) - Math.max(p.y, q.y);
      if (wide > 1 && high > 4) overlapping.push(`${svg.parentElement.id}: ${a} / ${b}`);
    }));
  }
  const ids = all('[id]').map(e => e.id);
  return {
    faint: [...new Set(faint)],
    outside,
    overlapping,
    repeated: ids.filter((id, i) => ids.indexOf(id) !== i),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    background: getComputedStyle(document.documentElement).backgroundColor,
    headings: all('h1').map(e => e.textContent),
    figures: all('figure').map(figure => {
      const svg = figure.querySelector('svg.chart');
      const named = svg.getAttribute('aria-labelledby').split(' ');
      return {
        id: figure.id,
        title: figure.querySelector('h3').textContent,
        named: svg.getAttribute('role') === 'img'
          && named.every(id => document.getElementById(id)?.textContent.length > 10),
        width: svg.getBoundingClientRect().width,
        marks: all('.mark', svg).length,
        columns: all('thead th', figure).length,
        rows: all('tbody tr', figure).map(row => row.cells.length),
        caption: figure.querySelector('table caption').textContent,
      };
    }),
    data: all('data').map(e => ({ value: e.value, pointer: e.dataset.pointer, text: e.textContent })),
    verdicts: all('.verdict').map(e => e.textContent),
    lists: all('aside').map(aside => [aside.className, all('li', aside).map(li => li.textContent)]),
  };
})()
