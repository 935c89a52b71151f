// The page without a mouse.
import assert from 'node:assert/strict';
import { scenario, given } from '../lib/scenario.mjs';
import * as at from '../lib/page.mjs';

const focused = (page) => page.evaluate(() => {
  const e = document.activeElement;
  return { text: e?.getAttribute('aria-label') ?? e?.textContent?.trim(), tag: e?.tagName, inDialog: Boolean(e?.closest('dialog')) };
});

scenario('the first tab stop skips the navigation', async (page) => {
  await at.visit(page, at.tenants(given.queue));
  await page.keyboard.press('Tab');
  assert.match((await focused(page)).text, /^Skip/);
  const box = await page.locator('.skip').boundingBox();
  assert.ok(box.y >= 0, 'the focused link is not visible');
  await page.keyboard.press('Enter');
  assert.equal((await focused(page)).tag, 'H1');
  assert.match(page.url(), /tenants$/, 'skipping led to another page');
});

scenario('every tab stop is visible, in the order of the page', async (page) => {
  for (const path of [at.now(), at.tenants(given.queue), at.job(given.queue, given.jobs.archived), at.failures(given.queue), at.limits(given.queue), at.lab()]) {
    await at.visit(page, path);
    // Two stops can look alike, but there is one such link, and it is the first stop.
    await page.locator('.skip').focus();
    let before = -1, main = false;
    for (let stops = 0; ; stops++) {
      assert.ok(stops < 500, `#/${path}: the focus does not come back to the first stop`);
      await page.keyboard.press('Tab');
      const stop = await page.evaluate(() => {
        const e = document.activeElement;
        if (!e || e === document.body) return null;
        const box = e.getBoundingClientRect(), style = getComputedStyle(e);
        return {
          html: e.outerHTML.slice(0, 150), seen: box.width > 0 && box.height > 0, skip: e.matches('.skip'),
          outlined: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0,
          at: [...document.querySelectorAll('*')].indexOf(e), main: Boolean(e.closest('main')),
        };
      });
      if (stop === null) continue; // the browser's own bar
      assert.ok(stop.seen, `not visible: ${stop.html}`);
      assert.ok(stop.outlined, `no focus outline at ${stop.html}`);
      if (stop.skip) break; // once around
      assert.ok(stop.at > before, `the focus goes back to ${stop.html}`);
      before = stop.at;
      main ||= stop.main;
    }
    assert.ok(main, `#/${path}: no stop is in the main part`);
  }
});

scenario('following a link announces the new page', async (page) => {
  await at.visit(page, at.tenants(given.queue));
  await page.getByRole('link', { name: given.tenant, exact: true }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { level: 1, name: given.tenant }).waitFor();
  await at.settled(page);
  await page.waitForFunction(() => document.activeElement.tagName === 'H1');
  assert.match(await page.title(), new RegExp(given.tenant));
});

scenario('a dialog keeps the focus, and restores it', async (page) => {
  await at.visit(page, at.job(given.queue, given.jobs.archived));
  const open = page.getByRole('button', { name: 'Retry…' });
  await open.focus();
  await page.keyboard.press('Enter');
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  assert.ok(await dialog.getAttribute('aria-labelledby'));
  await page.waitForFunction(() => document.activeElement.closest('dialog'));
  for (let i = 0; i < 8; i++) {
    await page.keyboard.press('Tab');
    const { inDialog, tag } = await focused(page);
    assert.ok(inDialog || tag === 'BODY', `the focus left the dialog for ${tag}`); // BODY: the browser's own bar
  }
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'hidden' });
  await page.waitForFunction(() => document.activeElement.textContent === 'Retry…'); // the focus came back

  // Text typed into a dialog that was closed is not in the next one.
  await page.keyboard.press('Enter');
  await dialog.getByLabel('Reason').fill('half a reason');
  await dialog.getByRole('button', { name: 'Go back' }).click();
  await dialog.waitFor({ state: 'hidden' });
  await open.press('Enter');
  assert.equal(await dialog.getByLabel('Reason').inputValue(), '');

  // A dialog opened before the browser reports that another was closed stays open.
  await page.evaluate(() => new Promise((reported) => {
    const dialog = document.querySelector('dialog[open]');
    const button = (text) => [...document.querySelectorAll('button')].find((b) => b.textContent === text);
    dialog.addEventListener('close', () => requestAnimationFrame(() => requestAnimationFrame(reported)), { once: true });
    new MutationObserver((_, observer) => {
      observer.disconnect();
      button('Retry…').click();
    }).observe(dialog, { attributeFilter: ['open'] });
    button('Go back').click();
  }));
  assert.equal(await dialog.getByLabel('Reason').inputValue(), '');

  // So does a dialog opened right after the browser closed another, as on Escape.
  await page.evaluate(() => {
    document.querySelector('dialog[open]').close();
    [...document.querySelectorAll('button')].find((b) => b.textContent === 'Retry…').click();
  });
  assert.equal(await dialog.getByLabel('Reason').inputValue(), '');
});

scenario('a menu closes, and restores the focus', async (page) => {
  await at.visit(page, at.tenants(given.queue));
  const menu = page.locator('details.menu summary').first();
  await menu.focus();
  await page.keyboard.press('Enter');
  await page.locator('details.menu[open]').waitFor();
  await page.keyboard.press('Tab');
  assert.equal((await focused(page)).tag, 'BUTTON');
  await page.keyboard.press('Escape');
  await page.locator('details.menu[open]').waitFor({ state: 'detached' });
  await page.waitForFunction(() => document.activeElement.tagName === 'SUMMARY');
});
