// Pictures of the page in the manual, and whether they still show what the page is.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

// skeleton is what a page looks like whatever its traffic: for each card, heading, label
// and control, in order, its words without numbers, how it is drawn, and where cards are.
const skeleton = (page) => page.evaluate(() => {
  const lines = [];
  for (const e of document.querySelectorAll('.card, h1, h2, h3, th, dt, summary, label, select, button, nav a')) {
    // How many rows and groups there are depends on the traffic.
    if (!e.checkVisibility() || e.closest('tbody, .group, [role="status"]')) continue;
    const style = getComputedStyle(e), box = e.getBoundingClientRect();
    const drawn = [style.fontSize, style.fontWeight, style.color, style.backgroundColor, style.borderTopWidth, style.borderTopLeftRadius, style.padding].join(' ');
    const said = e.cloneNode(true); // without marks and notes, which the traffic makes, and options
    for (const part of said.querySelectorAll('small, .badge, select')) part.remove();
    const words = (e.ariaLabel ?? (e.matches('.card, select') ? '' : said.textContent)).replace(/[\da-f]{8}-[\da-f-]{27}/, '#').replace(/\d[\d,.:]*/g, '#').trim();
    const place = e.matches('.card') ? ` at ${Math.round(box.x)}, ${Math.round(box.width)} wide` : '';
    lines.push(`${e.matches('.card') ? 'card' : e.localName} "${words}"${place} (${drawn})`);
  }
  return lines.join('\n') + '\n';
});

const size = (png) => `${png.readUInt32BE(16)} x ${png.readUInt32BE(20)}`;
const hash = (png) => createHash('sha256').update(png).digest('hex');

// picture takes a picture of what is shown and puts it at path.png, with the page's
// skeleton and the picture's hash in path.txt; or it asserts that the picture that is
// there is of this page.
export async function picture(page, path, update) {
  const png = await page.screenshot({ caret: 'initial' });
  assert.ok(png.length <= 150_000, `${path}.png has ${png.length} bytes`);
  if (update) {
    writeFileSync(`${path}.png`, png);
    writeFileSync(`${path}.txt`, `picture ${size(png)} ${hash(png)}\n${await skeleton(page)}`);
    return;
  }
  const kept = readFileSync(`${path}.png`), [first, ...rest] = readFileSync(`${path}.txt`, 'utf8').split('\n');
  assert.equal(first, `picture ${size(kept)} ${hash(kept)}`, `${path}.txt is of another picture: make images`);
  assert.equal(size(kept), size(png), `${path}.png has another size: make images`);
  // Where a provider asks for a second's pause, the page has other buttons for as long.
  let today = await skeleton(page);
  for (const end = Date.now() + 10_000; today !== rest.join('\n') && Date.now() < end; await sleep(100)) today = await skeleton(page);
  assert.deepEqual(today.split('\n'), rest, `${path}.png shows what the page was like before: make images`);
}
