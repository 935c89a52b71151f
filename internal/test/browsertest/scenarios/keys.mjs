// A server that requires a key.
import assert from 'node:assert/strict';
import { ask, given, scenario } from '../lib/scenario.mjs';
import { accessible, fits } from '../lib/rules.mjs';
import * as at from '../lib/page.mjs';
import { base } from '../lib/scenario.mjs';

const allow = [/status of 401/];

scenario('without a key nothing is shown', { allow }, async (page, tab) => {
  await page.goto(`${base}/#/${at.tenants(given.queue)}`);
  const dialog = page.getByRole('dialog', { name: 'API key required' });
  await dialog.waitFor();
  await accessible(page);
  await fits(page);
  await page.keyboard.press('Escape');
  assert.ok(await dialog.isVisible(), 'the dialog can be dismissed');
  assert.equal(await page.getByText(given.names.waiting).count(), 0);

  await dialog.getByLabel('Key').fill('hg_wrong');
  await dialog.getByRole('button', { name: 'Open' }).click();
  await dialog.getByText('The server does not accept this key.').waitFor();
  await dialog.getByLabel('Key').fill(given.key);
  await dialog.getByLabel('Key').press('Enter');
  await dialog.waitFor({ state: 'hidden' });
  await page.getByRole('link', { name: given.names.waiting, exact: true }).waitFor();
  await at.live(page);

  // The key is kept in this tab only, is in no address, and ends with the tab.
  assert.ok(!page.url().includes(given.key));
  assert.deepEqual(tab.requests.filter((r) => r.url.href.includes(given.key)), []);
  assert.ok(!JSON.stringify(await page.evaluate(() => ({ ...localStorage }))).includes(given.key));
  await page.reload();
  await at.settled(page);
  const other = await tab.context.newPage();
  await other.goto(base);
  await other.getByRole('dialog', { name: 'API key required' }).waitFor();
  await other.close();

  await page.getByRole('button', { name: /Sign out/ }).click();
  await dialog.waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('headgate-key')), null);
});

scenario('a key that is revoked while the page is open', { allow, key: given.key }, async (page) => {
  await at.visit(page, at.tenants(given.queue));
  await ask('revoke the key');
  await page.getByRole('dialog', { name: 'API key required' }).waitFor();
});
