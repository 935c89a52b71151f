// Rules for every page.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

// accessible asserts that axe finds no violations, of the given rules or of all.
export async function accessible(page, what = page.url(), rules = undefined) {
  // The policy of the page forbids a script tag.
  if (!await page.evaluate(() => 'axe' in window)) await page.evaluate(axe);
  const found = await page.evaluate(async (rules) => {
    const { violations } = await window.axe.run(document, { resultTypes: ['violations'], ...(rules ? { runOnly: rules } : {}) });
    return violations.map((v) => `${v.id}: ${v.help}\n` + v.nodes.slice(0, 5).map((n) => `  ${n.html.slice(0, 200)}\n    ${n.any.concat(n.all, n.none).map((c) => c.message).join('; ')}`).join('\n'));
  }, rules);
  assert.equal(found.join('\n'), '', `axe at ${what}`);
}

export const colours = ['color-contrast', 'link-in-text-block'];

// fits asserts that the document is not wider than the window.
export async function fits(page, what = page.url()) {
  const wide = await page.evaluate(() => {
    const room = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= room) return [];
    // Elements that overflow and that no ancestor clips.
    const clipped = (e) => {
      for (let p = e.parentElement; p && p !== document.body; p = p.parentElement) {
        if (getComputedStyle(p).overflowX !== 'visible') return true;
      }
      return false;
    };
    const out = [...document.body.querySelectorAll('*')].filter((e) => e.getBoundingClientRect().right > room + 0.5 && !clipped(e));
    return [`${document.documentElement.scrollWidth} px in a window of ${room}`, ...out.slice(0, 5).map((e) => e.outerHTML.slice(0, 160))];
  });
  assert.equal(wide.join('\n'), '', `wider than the window at ${what}`);
}
