// Pictures of the page in the documentation, and checks that they are up to date.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

// skeleton describes a page independently of its traffic: for each card, heading, label and control,
// in order, its text without numbers and its style; for cards, also their place.
const skeleton = (page) => page.evaluate(() => {
  const lines = [];
  for (const e of document.querySelectorAll('.card, h1, h2, h3, th, dt, summary, label, select, button, nav a')) {
    // The numbers of rows and groups depend on the traffic.
    if (!e.checkVisibility() || e.closest('tbody, .group, [role="status"]')) continue;
    const style = getComputedStyle(e), box = e.getBoundingClientRect();
    const drawn = [style.fontSize, style.fontWeight, style.color, style.backgroundColor, style.borderTopWidth, style.borderTopLeftRadius, style.padding].join(' ');
    const said = e.cloneNode(true); // without badges and notes, which depend on the traffic, and options
    for (const part of said.querySelectorAll('small, .badge, select')) part.remove();
    const words = (e.ariaLabel ?? (e.matches('.card, select') ? '' : said.textContent)).replace(/[\da-f]{8}-[\da-f-]{27}/, '#').replace(/\d[\d,.:]*/g, '#').trim();
    const place = e.matches('.card') ? ` at ${Math.round(box.x)}, ${Math.round(box.width)} wide` : '';
    lines.push(`${e.matches('.card') ? 'card' : e.localName} "${words}"${place} (${drawn})`);
  }
  return lines.join('\n') + '\n';
});

const size = (png) => `${png.readUInt32BE(16)} x ${png.readUInt32BE(20)}`;
const hash = (png) => createHash('sha256').update(png).digest('hex');

// picture writes a screenshot to path.png, and its hash and the page's skeleton to path.txt, if
// update is true. Otherwise it asserts that the existing picture shows this page.
export async function picture(page, path, update) {
  await page.mouse.move(0, 0); // what it points at looks different, and what was clicked may have moved
  const png = await page.screenshot({ caret: 'initial' });
  if (update) {
    assert.ok(png.length <= 150_000, `${path}.png has ${png.length} bytes`);
    writeFileSync(`${path}.png`, png);
    writeFileSync(`${path}.txt`, `picture ${size(png)} ${hash(png)}\n${await skeleton(page)}`);
    return;
  }
  const kept = readFileSync(`${path}.png`), [first, ...rest] = readFileSync(`${path}.txt`, 'utf8').split('\n');
  assert.equal(first, `picture ${size(kept)} ${hash(kept)}`, `${path}.txt belongs to another picture: run make images`);
  assert.equal(size(kept), size(png), `${path}.png has another size: run make images`);
  // While a provider has asked for a pause of a second, the page has other buttons.
  let today = await skeleton(page);
  for (const end = Date.now() + 180_000; today !== rest.join('\n') && Date.now() < end; await sleep(100)) today = await skeleton(page);
  assert.deepEqual(today.split('\n'), rest, `${path}.png is out of date: run make images`);
}
